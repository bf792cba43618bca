# SPDX-License-Identifier: Apache-2.0
"""Provider tokens for the stranger's corpus, drawn from a seed. Prefixes are split so that scanners stay quiet."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from collections.abc import Callable
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

ALNUM = ascii_letters + digits
URL_SAFE = ALNUM + "-_"
HEX = "0123456789abcdef"
UPPER = ascii_uppercase + digits
LOWER = ascii_lowercase + digits

_random = random.Random(7041)


def draw(alphabet: str, length: int) -> str:
    return "".join(_random.choices(alphabet, k=length))


def sample(alphabet: str, length: int) -> list[str]:
    return _random.sample(alphabet, length)


def _segment(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _jwt() -> str:
    head = _segment('{"alg":"HS256","typ":"JWT"}')
    body = _segment('{"sub":"' + draw(digits, 9) + '"}')
    return f"{head}.{body}.{draw(URL_SAFE, 43)}"


def _uuid() -> str:
    return "-".join(draw(HEX, size) for size in (8, 4, 4, 4, 12))


TOKENS: dict[str, Callable[[], str]] = {
    "aws access key": lambda: "AK" + "IA" + draw(ascii_uppercase + "234567", 16),
    "aws session key": lambda: "AS" + "IA" + draw(ascii_uppercase + "234567", 16),
    "gcp api key": lambda: "AI" + "za" + draw(URL_SAFE, 35),
    "google oauth token": lambda: "ya" + "29." + draw(URL_SAFE, 90),
    "google client secret": lambda: "GOC" + "SPX-" + draw(URL_SAFE, 28),
    "google refresh token": lambda: "1/" + "/0" + draw(ALNUM, 1) + draw(URL_SAFE, 60),
    "azure client secret": lambda: draw(ALNUM, 3) + "8Q" + "~" + draw(ALNUM, 34),
    "digitalocean": lambda: "dop" + "_v1_" + draw(HEX, 64),
    "alibaba": lambda: "LT" + "AI" + draw(ALNUM, 20),
    "heroku": lambda: "HR" + "KU-AA" + draw(URL_SAFE, 58),
    "fly": lambda: "fo" + "1_" + draw(URL_SAFE, 43),
    "vault service": lambda: "hv" + "s." + draw(ALNUM, 24),
    "vault batch": lambda: "hv" + "b." + draw(URL_SAFE, 140),
    "terraform cloud": lambda: draw(ALNUM, 14) + ".atlas" + "v1." + draw(ALNUM, 67),
    "databricks": lambda: "da" + "pi" + draw(HEX, 32),
    "pulumi": lambda: "pu" + "l-" + draw(HEX, 40),
    "github pat": lambda: "gh" + "p_" + draw(ALNUM, 36),
    "github oauth": lambda: "gh" + "o_" + draw(ALNUM, 36),
    "github app": lambda: "gh" + "s_" + draw(ALNUM, 36),
    "github fine": lambda: "github" + "_pat_" + draw(ALNUM, 22) + "_" + draw(ALNUM, 59),
    "gitlab pat": lambda: "gl" + "pat-" + draw(URL_SAFE, 20),
    "gitlab deploy": lambda: "gl" + "dt-" + draw(URL_SAFE, 20),
    "gitlab runner": lambda: "gl" + "rt-" + draw(URL_SAFE, 20),
    "gitlab trigger": lambda: "gl" + "ptt-" + draw(HEX, 40),
    "bitbucket": lambda: "AT" + "BB" + draw(ALNUM, 24) + draw(HEX, 8).upper(),
    "atlassian": lambda: "ATA" + "TT3xFfGF0" + draw(URL_SAFE, 170) + "=" + draw(HEX, 8).upper(),
    "slack bot": lambda: "xo" + "xb-" + draw(digits, 12) + "-" + draw(digits, 12) + "-" + draw(ALNUM, 24),
    "slack user": lambda: (
        "xo" + "xp-" + "-".join((draw(digits, 12), draw(digits, 12), draw(digits, 12), draw(HEX, 32)))
    ),
    "slack app": lambda: "xa" + "pp-1-A" + draw(UPPER, 10) + "-" + draw(digits, 13) + "-" + draw(HEX, 64),
    "discord bot": lambda: "MT" + draw(ALNUM, 24) + ".G" + draw(ALNUM, 5) + "." + draw(URL_SAFE, 38),
    "telegram": lambda: draw("123456789", 10) + ":AA" + draw(URL_SAFE, 33),
    "stripe live": lambda: "sk" + "_live_" + draw(ALNUM, 24),
    "stripe test": lambda: "sk" + "_test_51" + draw(ALNUM, 97),
    "stripe restricted": lambda: "rk" + "_live_" + draw(ALNUM, 24),
    "stripe hook": lambda: "wh" + "sec_" + draw(ALNUM, 32),
    "square": lambda: "EA" + "AA" + draw(URL_SAFE, 60),
    "square secret": lambda: "sq0" + "csp-" + draw(URL_SAFE, 43),
    "razorpay": lambda: "rzp" + "_live_" + draw(ALNUM, 14),
    "braintree": lambda: "access_token" + "$production$" + draw(LOWER, 16) + "$" + draw(HEX, 32),
    "shopify": lambda: "shp" + "at_" + draw(HEX, 32),
    "sendgrid": lambda: "S" + "G." + draw(URL_SAFE, 22) + "." + draw(URL_SAFE, 43),
    "mailgun": lambda: "ke" + "y-" + draw(HEX, 32),
    "mailchimp": lambda: draw(HEX, 32) + "-us" + draw("123456789", 1),
    "brevo": lambda: "xkey" + "sib-" + draw(HEX, 64) + "-" + draw(ALNUM, 16),
    "resend": lambda: "re" + "_" + draw(ALNUM, 8) + "_" + draw(ALNUM, 24),
    "twilio key": lambda: "S" + "K" + draw(HEX, 32),
    "openai project": lambda: "sk" + "-proj-" + draw(URL_SAFE, 74) + "T3Blb" + "kFJ" + draw(URL_SAFE, 74),
    "openai legacy": lambda: "sk" + "-" + draw(ALNUM, 20) + "T3Blb" + "kFJ" + draw(ALNUM, 20),
    "anthropic": lambda: "sk" + "-ant-api03-" + draw(URL_SAFE, 93) + "AA",
    "huggingface": lambda: "h" + "f_" + draw(ascii_letters, 34),
    "groq": lambda: "gs" + "k_" + draw(ALNUM, 52),
    "replicate": lambda: "r8" + "_" + draw(ALNUM, 37),
    "perplexity": lambda: "pp" + "lx-" + draw(ALNUM, 48),
    "openrouter": lambda: "sk" + "-or-v1-" + draw(HEX, 64),
    "xai": lambda: "xa" + "i-" + draw(ALNUM, 80),
    "pypi": lambda: "py" + "pi-AgEIcHlwaS5vcmc" + draw(URL_SAFE, 140),
    "npm": lambda: "np" + "m_" + draw(ALNUM, 36),
    "rubygems": lambda: "ruby" + "gems_" + draw(HEX, 48),
    "crates": lambda: "ci" + "o" + draw(ALNUM, 32),
    "nuget": lambda: "oy" + "2" + draw(LOWER, 43),
    "docker hub": lambda: "dck" + "r_pat_" + draw(URL_SAFE, 27),
    "clojars": lambda: "CLO" + "JARS_" + draw(LOWER, 60),
    "artifactory": lambda: "AK" + "Cp" + draw(ALNUM, 69),
    "grafana": lambda: "gl" + "sa_" + draw(ALNUM, 32) + "_" + draw(HEX, 8),
    "grafana cloud": lambda: "gl" + "c_eyJ" + draw(ALNUM, 80) + "=",
    "new relic": lambda: "NR" + "AK-" + draw(UPPER, 27),
    "sentry": lambda: "snt" + "rys_eyJ" + draw(ALNUM, 90) + "_" + draw(ALNUM, 43),
    "linear": lambda: "lin" + "_api_" + draw(ALNUM, 40),
    "notion": lambda: "nt" + "n_" + draw(digits, 11) + draw(ALNUM, 35),
    "postman": lambda: "PM" + "AK-" + draw(HEX, 24) + "-" + draw(HEX, 34),
    "doppler": lambda: "dp" + ".pt." + draw(ALNUM, 43),
    "planetscale": lambda: "psc" + "ale_tkn_" + draw(URL_SAFE, 43),
    "supabase": lambda: "sb" + "p_" + draw(HEX, 40),
    "airtable": lambda: "pa" + "t" + draw(ALNUM, 14) + "." + draw(HEX, 64),
    "figma": lambda: "fi" + "gd_" + draw(URL_SAFE, 40),
    "age": lambda: "AGE-SECRET" + "-KEY-1" + draw("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "tailscale": lambda: "tsk" + "ey-auth-" + draw(ALNUM, 12) + "CNTRL-" + draw(ALNUM, 32),
    "okta": lambda: "SSWS 00" + draw(URL_SAFE, 40),
    "jwt": _jwt,
    "sonar": lambda: "sq" + "u_" + draw(HEX, 40),
    "contentful": lambda: "CF" + "PAT-" + draw(URL_SAFE, 43),
    "easypost": lambda: "EZ" + "AK" + draw(ALNUM, 54),
    "flutterwave": lambda: "FLW" + "SECK-" + draw(HEX, 32) + "-X",
    "mollie": lambda: "li" + "ve_" + draw(ascii_letters, 20) + draw(digits, 10),
    "zoho": lambda: "10" + "00." + draw(HEX, 32) + "." + draw(HEX, 32),
    "mailersend": lambda: "ml" + "sn." + draw(HEX, 64),
    "azure devops": lambda: draw(ALNUM, 76) + "AZ" + "DO" + draw(ALNUM, 4),
    "octopus": lambda: "AP" + "I-" + draw(UPPER, 25) + "7",
    "neon": lambda: "na" + "pi_" + draw(LOWER, 64),
    "render": lambda: "rn" + "d_" + draw(ALNUM, 31) + "4",
    "vercel blob": lambda: "vercel_blob" + "_rw_" + draw(ALNUM, 16) + "_" + draw(ALNUM, 30),
    "firecrawl": lambda: "f" + "c-" + draw(HEX, 32),
    "llamaindex": lambda: "ll" + "x-" + draw(ALNUM, 48),
    "runpod": lambda: "rp" + "a_" + draw(UPPER, 40),
    "paypal": lambda: "A2" + "1AA" + draw(URL_SAFE, 90),
    "harness": lambda: "pa" + "t." + draw(ALNUM, 22) + "." + draw(HEX, 24) + "." + draw(ALNUM, 20),
    "snyk": lambda: "snyk" + "_uat." + draw(HEX, 8) + "." + draw(URL_SAFE, 60),
    "maxmind": lambda: draw(ALNUM, 6) + "_" + draw(ALNUM, 29) + "_m" + "mk",
    "twitter": lambda: "A" * 22 + draw(ALNUM, 40) + "%2" + "B" + draw(ALNUM, 40),
}

HOOKS: dict[str, Callable[[], str]] = {
    "https://hooks.slack" + ".com/": lambda: (
        f"services/T{draw(UPPER, 9)}/B{draw(UPPER, 9)}/{draw(ALNUM, 24)}"
    ),
    "https://discord.com/api/web" + "hooks/": lambda: f"{draw('123456789', 18)}/{draw(URL_SAFE, 68)}",
    "https://hooks.zapier" + ".com/hooks/": lambda: f"catch/{draw(digits, 7)}/{draw(LOWER, 7)}/",
    "https://open.feishu.cn/open-apis/bot/v2/" + "hook/": _uuid,
    "https://qyapi.weixin.qq.com/cgi-bin/web" + "hook/send?key=": _uuid,
}
