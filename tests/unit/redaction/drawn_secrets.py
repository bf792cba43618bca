# SPDX-License-Identifier: Apache-2.0
"""Generators of secrets in the formats that providers document, with bodies drawn from a seed.

No secret stands in this file: prefixes are joined with random bodies at run time, so that scanners stay quiet.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + string.digits
URLSAFE = ALNUM + "_-"
BASE64 = ALNUM + "+/"

Draw = random.Random
Format = Callable[[Draw], str]


def body(draw: Draw, alphabet: str, count: int) -> str:
    """Return `count` characters; the first and last are alphanumeric, and one is a digit."""
    inner = [draw.choice(alphabet) for _ in range(count)]
    plain = [sign for sign in alphabet if sign.isalnum()]
    inner[0], inner[-1] = draw.choice(plain), draw.choice(plain)
    inner[count // 2] = draw.choice("23456789")
    return "".join(inner)


def prefixed(prefix: str, alphabet: str, count: int, suffix: str = "") -> Format:
    """Return a format: a fixed prefix, a random body, a fixed suffix."""
    return lambda draw: prefix + body(draw, alphabet, count) + suffix


def joined(*parts: Format | str) -> Format:
    """Return a format made of fixed and random parts."""
    return lambda draw: "".join(part if isinstance(part, str) else part(draw) for part in parts)


def of(alphabet: str, count: int) -> Format:
    """Return a format that is nothing but a random body."""
    return prefixed("", alphabet, count)


def uuid(draw: Draw) -> str:
    """Return a random UUID."""
    return "-".join(body(draw, HEX, count) for count in (8, 4, 4, 4, 12))


def encoded(value: object) -> str:
    """Return the URL-safe base64 of a JSON value, without padding."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def jwt(draw: Draw) -> str:
    """Return a signed JSON web token."""
    header = encoded({"alg": draw.choice(["HS256", "RS256"]), "typ": "JWT"})
    return f"{header}.{encoded({'sub': body(draw, LOWER, 8), 'iat': draw.randrange(10**9)})}.{body(draw, URLSAFE, 43)}"


def unsigned_jwt(draw: Draw) -> str:
    """Return a JSON web token without a signature."""
    return f"{encoded({'alg': 'none'})}.{encoded({'sub': body(draw, LOWER, 8)})}."


TOKENS: dict[str, Format] = {
    "aws id": prefixed("AK" + "IA", UPPER, 16),
    "aws temporary id": prefixed("AS" + "IA", UPPER, 16),
    "aws session": prefixed("IQoJb3Jp" + "Z2lu", BASE64, 300, "=="),
    "aws session old": prefixed("FwoGZXIv" + "YXdz", BASE64, 200),
    "gcp api key": prefixed("AI" + "za", URLSAFE, 35),
    "gcp oauth": prefixed("ya" + "29.", URLSAFE, 100),
    "gcp client secret": prefixed("GOC" + "SPX-", URLSAFE, 28),
    "gcp refresh": prefixed("1/" + "/0", URLSAFE, 60),
    "azure client secret": joined(of(ALNUM, 3), "8Q" + "~", of(ALNUM + "_~.-", 34)),
    "digitalocean": prefixed("dop" + "_v1_", HEX, 64),
    "digitalocean oauth": prefixed("doo" + "_v1_", HEX, 64),
    "digitalocean refresh": prefixed("dor" + "_v1_", HEX, 64),
    "alibaba": prefixed("LT" + "AI", ALNUM, 20),
    "heroku": prefixed("HR" + "KU-AA", URLSAFE, 58),
    "fly": prefixed("fm" + "2_", BASE64, 120),
    "netlify": prefixed("nf" + "p_", ALNUM, 36),
    "supabase": prefixed("sb" + "p_", HEX, 40),
    "planetscale": prefixed("pscale" + "_tkn_", URLSAFE, 43),
    "planetscale password": prefixed("pscale" + "_pw_", URLSAFE, 43),
    "databricks": prefixed("da" + "pi", HEX, 32),
    "vault": prefixed("hv" + "s.", URLSAFE, 90),
    "vault batch": prefixed("hv" + "b.", URLSAFE, 140),
    "vault legacy": joined("s" + ".", lambda draw: "aB3" + body(draw, ALNUM, 21)),
    "terraform": joined(of(ALNUM, 14), ".atlas" + "v1.", of(URLSAFE, 67)),
    "doppler": prefixed("dp" + ".pt.", ALNUM, 43),
    "infisical": joined("st" + ".", of(HEX, 24), ".", of(HEX, 32), ".", of(HEX, 32)),
    "onepassword": prefixed("ops" + "_eyJ", BASE64, 250),
    "github": prefixed("gh" + "p_", ALNUM, 36),
    "github oauth": prefixed("gh" + "o_", ALNUM, 36),
    "github user": prefixed("gh" + "u_", ALNUM, 36),
    "github server": prefixed("gh" + "s_", ALNUM, 36),
    "github refresh": prefixed("gh" + "r_", ALNUM, 76),
    "github fine": joined("github" + "_pat_", of(ALNUM, 22), "_", of(ALNUM, 59)),
    "gitlab": prefixed("gl" + "pat-", URLSAFE, 20),
    "gitlab routable": joined("gl" + "pat-", of(URLSAFE, 27), ".", of(LOWER, 2), ".", of(LOWER, 9)),
    "gitlab deploy": prefixed("gl" + "dt-", URLSAFE, 20),
    "gitlab runner": prefixed("gl" + "rt-", URLSAFE, 20),
    "gitlab build": prefixed("gl" + "cbt-", URLSAFE, 24),
    "gitlab trigger": prefixed("gl" + "ptt-", HEX, 40),
    "bitbucket": prefixed("AT" + "BB", ALNUM, 32),
    "bitbucket access": joined("AT" + "CTT3xFf", of(URLSAFE, 160), "=", of(UPPER, 8)),
    "atlassian": joined("AT" + "ATT3xFf", of(URLSAFE, 170), "=", of(UPPER, 8)),
    "slack bot": joined("xox" + "b-", of(string.digits, 12), "-", of(string.digits, 12), "-", of(ALNUM, 24)),
    "slack user": joined("xox" + "p-", of(string.digits, 12), "-", of(string.digits, 12), "-", of(HEX, 32)),
    "slack refresh": prefixed("xox" + "e-1-", ALNUM, 140),
    "slack app": joined("xap" + "p-1-A", of(UPPER, 10), "-", of(string.digits, 13), "-", of(HEX, 64)),
    "discord": joined("M", of(ALNUM, 23), ".", of(URLSAFE, 6), ".", of(URLSAFE, 38)),
    "telegram": joined(of(string.digits, 10), ":" + "AA", of(URLSAFE, 33)),
    "stripe": prefixed("sk" + "_live_", ALNUM, 24),
    "stripe long": prefixed("sk" + "_live_", ALNUM, 99),
    "stripe test": prefixed("sk" + "_test_", ALNUM, 24),
    "stripe restricted": prefixed("rk" + "_live_", ALNUM, 24),
    "stripe webhook": prefixed("whs" + "ec_", ALNUM, 32),
    "square": prefixed("sq0" + "atp-", URLSAFE, 22),
    "square secret": prefixed("sq0" + "csp-", URLSAFE, 43),
    "square production": prefixed("EA" + "AA", URLSAFE, 60),
    "braintree": joined("access" + "_token$production$", of(LOWER, 16), "$", of(HEX, 32)),
    "adyen": joined("AQ" + "Eyhm", of(BASE64, 60), "-", of(BASE64, 44), "=-", of(ALNUM, 16)),
    "razorpay": prefixed("rzp" + "_live_", ALNUM, 14),
    "shopify": prefixed("shp" + "at_", HEX, 32),
    "shopify secret": prefixed("shp" + "ss_", HEX, 32),
    "shopify custom": prefixed("shp" + "ca_", HEX, 32),
    "shopify private": prefixed("shp" + "pa_", HEX, 32),
    "plaid": joined("access" + "-production-", uuid),
    "sendgrid": joined("S" + "G.", of(URLSAFE, 22), ".", of(URLSAFE, 43)),
    "mailgun": prefixed("ke" + "y-", HEX, 32),
    "mailgun new": joined(of(HEX, 32), "-", of(HEX, 8), "-", of(HEX, 8)),
    "mailchimp": joined(of(HEX, 32), "-us" + "12"),
    "resend": joined("re" + "_", lambda draw: "aB" + body(draw, ALNUM, 6), "_", of(ALNUM, 24)),
    "brevo": joined("xkey" + "sib-", of(HEX, 64), "-", of(ALNUM, 16)),
    "openai": joined("s" + "k-", of(ALNUM, 20), "T3Bl" + "bkFJ", of(ALNUM, 20)),
    "openai project": prefixed("sk" + "-proj-", URLSAFE, 120),
    "openai service": prefixed("sk" + "-svcacct-", URLSAFE, 120),
    "openai admin": prefixed("sk" + "-admin-", URLSAFE, 120),
    "anthropic": prefixed("sk-" + "ant-api03-", URLSAFE, 93, "AA"),
    "anthropic admin": prefixed("sk-" + "ant-admin01-", URLSAFE, 93, "AA"),
    "openrouter": prefixed("sk-" + "or-v1-", HEX, 64),
    "deepseek": prefixed("s" + "k-", HEX, 32),
    "huggingface": prefixed("h" + "f_", ALNUM, 34),
    "groq": prefixed("gs" + "k_", ALNUM, 52),
    "replicate": prefixed("r" + "8_", ALNUM, 37),
    "perplexity": prefixed("ppl" + "x-", ALNUM, 48),
    "xai": prefixed("xa" + "i-", ALNUM, 80),
    "fireworks": prefixed("f" + "w_", ALNUM, 24),
    "langsmith": joined("lsv2" + "_pt_", of(HEX, 32), "_", of(HEX, 10)),
    "pinecone": joined("pc" + "sk_", of(ALNUM, 6), "_", of(ALNUM, 63)),
    "notion": prefixed("sec" + "ret_", ALNUM, 43),
    "notion new": prefixed("nt" + "n_", ALNUM, 46),
    "airtable": joined("pa" + "t", of(ALNUM, 14), ".", of(HEX, 64)),
    "linear": prefixed("lin" + "_api_", ALNUM, 40),
    "figma": prefixed("fig" + "d_", URLSAFE, 40),
    "sentry": joined("sntr" + "ys_eyJ", of(ALNUM, 120), "=_", of(BASE64, 43)),
    "sentry user": prefixed("sntr" + "yu_", HEX, 64),
    "new relic": prefixed("NR" + "AK-", UPPER, 27),
    "grafana cloud": prefixed("gl" + "c_eyJ", BASE64, 120),
    "grafana": joined("gl" + "sa_", of(ALNUM, 32), "_", of(HEX, 8)),
    "posthog": prefixed("ph" + "c_", ALNUM, 43),
    "posthog personal": prefixed("ph" + "x_", ALNUM, 43),
    "twilio": prefixed("S" + "K", HEX, 32),
    "twilio account": prefixed("A" + "C", HEX, 32),
    "mapbox": joined("s" + "k.eyJ", of(ALNUM, 80), ".", of(URLSAFE, 22)),
    "mapbox public": joined("p" + "k.eyJ", of(ALNUM, 80), ".", of(URLSAFE, 22)),
    "dynatrace": joined("dt0" + "c01.", of(UPPER, 24), ".", of(UPPER, 64)),
    "pulumi": prefixed("pu" + "l-", HEX, 40),
    "postman": joined("PM" + "AK-", of(HEX, 24), "-", of(HEX, 34)),
    "npm": prefixed("np" + "m_", ALNUM, 36),
    "pypi": prefixed("pypi" + "-AgEIcHlwaS5vcmc", URLSAFE, 150),
    "rubygems": prefixed("ruby" + "gems_", HEX, 48),
    "nuget": prefixed("oy" + "2", LOWER, 43),
    "crates": prefixed("ci" + "o", ALNUM, 32),
    "docker": prefixed("dckr" + "_pat_", URLSAFE, 27),
    "jfrog": prefixed("AK" + "Cp", ALNUM, 69),
    "age": prefixed("AGE-SECRET" + "-KEY-1", UPPER, 58),
    "jwt": jwt,
    "jwt unsigned": unsigned_jwt,
}
"""Tokens that their shape alone gives away, whatever stands around them."""

NAMED: dict[str, tuple[str, Format]] = {
    "aws secret": ("AWS_SECRET_ACCESS_KEY", of(BASE64, 40)),
    "azure storage": ("AccountKey", joined(of(BASE64, 86), "==")),
    "cloudflare": ("CLOUDFLARE_API_TOKEN", of(URLSAFE, 40)),
    "linode": ("LINODE_TOKEN", of(HEX, 64)),
    "ibm": ("ibm_api_key", of(URLSAFE, 44)),
    "snowflake": ("SNOWFLAKE_PASSWORD", of(ALNUM, 16)),
    "vercel": ("vercelToken", of(ALNUM, 24)),
    "cohere": ("COHERE_API_KEY", of(ALNUM, 40)),
    "mistral": ("MISTRAL_API_KEY", of(ALNUM, 32)),
    "together": ("togetherApiKey", of(HEX, 64)),
    "datadog": ("DD_API_KEY", of(HEX, 32)),
    "datadog app": ("DD_APP_KEY", of(HEX, 40)),
    "algolia": ("algolia_admin_api_key", of(HEX, 32)),
    "okta": ("okta_token", joined("00", of(URLSAFE, 40))),
    "auth0": ("auth0ClientSecret", of(URLSAFE, 64)),
    "postmark": ("X-Postmark-Server-Token", uuid),
    "plaid": ("plaid-secret", of(HEX, 30)),
    "braintree": ("braintree_private_key", of(HEX, 32)),
    "twilio auth": ("TWILIO_AUTH_TOKEN", of(HEX, 32)),
    "heroku": ("HEROKU_API_KEY", uuid),
    "ses": ("ses_smtp_password", of(BASE64, 44)),
    "oracle": ("oracle.password", of(ALNUM, 18)),
    "password": ("password", of(ALNUM + "!@#$^*_-+", 14)),
    "db password": ("DB_PASSWORD", of(ALNUM + "!@#$^*_-+", 12)),
    "camel password": ("dbPassword", of(ALNUM + "!@#%^*", 16)),
    "client secret": ("client_secret", of(URLSAFE, 32)),
    "weak key": ("encryptionKey", of(ALNUM, 32)),
    "signature": ("signature", of(HEX, 64)),
}
"""Secrets without a shape, with the name that announces them."""
