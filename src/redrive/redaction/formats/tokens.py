# SPDX-License-Identifier: Apache-2.0
"""A table of the keys and tokens that providers issue, by their documented prefix and shape.

Only the table: `token_search.py` finds them. A row matches inside one run of letters, digits, `_`, `-` and `.`; lengths are the
shortest that the provider has issued, or a little less. Rows of `LOOSE` allow other characters as well and are searched only when
their needle is in the text. Every quantifier inside a lookahead is bounded, so that a row costs the same everywhere.
"""

from __future__ import annotations

from typing import Final

_DIGIT: Final = r"(?=[A-Za-z_.-]{0,64}[0-9])"
_MIXED: Final = r"(?=[a-z0-9_-]{0,40}[A-Z])(?=[A-Za-z_-]{0,40}[0-9])"
_SEVERAL_DIGITS: Final = r"(?=(?:[A-Za-z_-]{0,20}[0-9]){3})"
# Placed after the first character: only a space, quote or another separator may precede it.
_APART_BY_ONE: Final = r"(?:(?<![\w.-].)|(?<=\\[nrt].))"
_BASE64: Final = r"[A-Za-z0-9+/_-]"
_ENVIRONMENT: Final = "(?:sandbox|development|production)"
_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def _free(prefix: str) -> str:
    """Return the pattern of a prefix that starts a word.

    The letters come first and the lookbehind last, so that the search for them runs in C.
    """
    return rf"{prefix}(?:(?<!\w{prefix})|(?<=\\[nrt]{prefix})|(?<=%[0-9A-F]{{2}}{prefix}))"


ROWS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("jwt", (r"eyJ(?:(?<![\w-]eyJ)|(?<=\\[nrt]eyJ))[\w-]{8,}+\.[\w-]*+(?:\.[\w-]*+){0,3}",)),
    (
        "aws-key",
        (
            r"A(?:KIA|SIA|BIA|CCA|GPA|IDA|IPA|NPA|NVA|PKA|ROA|SCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
            r"bedrock-api-key-[A-Za-z0-9]{30,}+",
            r"ABSK[A-Za-z0-9]{30,}+",
        ),
    ),
    ("gcp-key", (r"AIza[\w-]{30,}+", r"GOCSPX-[\w-]{20,}+", r"ya29\.[\w.-]{20,}+", r"AQ\.Ab8[\w-]{30,}+")),
    ("digitalocean", (r"do[opr]_v1_[0-9a-f]{40,}+",)),
    ("alibaba", (rf"LTAI{_DIGIT}[A-Za-z0-9]{{12,26}}+(?![A-Za-z0-9])",)),
    ("heroku", (r"HRKU-[\w-]{30,}+",)),
    ("netlify", (r"nf[pcoub]_[A-Za-z0-9]{30,}+",)),
    ("supabase", (r"sbp_[0-9a-z_]{36,}+", r"sb_secret_[\w-]{20,}+")),
    ("planetscale", (r"pscale_(?:tkn|pw|oauth)_[\w.-]{20,}+",)),
    ("databricks", (r"d(?:api|ose|kea)[0-9a-f]{32}(?:-[0-9])?",)),
    ("vault", (r"hv[sbr]\.[\w-]{20,}+", rf"[sbr]{_APART_BY_ONE}\.{_MIXED}[A-Za-z0-9]{{24}}(?![\w.])")),
    ("terraform", (r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}+",)),
    ("doppler", (r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,}+",)),
    ("infisical", (r"st\.[0-9a-f-]{20,40}\.[0-9a-f]{16,}+(?:\.[0-9a-f]{16,}+)?",)),
    ("vercel", (r"vc[pikar]_[A-Za-z0-9]{24,}+", rf"vercel_{_MIXED}[A-Za-z0-9]{{24}}(?![\w-])")),
    ("cloudflare", (r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}+", r"cf(?:ut|at|k|oa)_[\w-]{30,}+")),
    ("github", (r"gh[pousr]_[A-Za-z0-9]{30,}+", r"github_pat_[A-Za-z0-9_]{30,}+")),
    (
        "gitlab",
        (r"gl(?:pat|dt|rtr?|cbt|ptt|ft|imt|agent|soat|oas|ffct|wt)-[\w.-]{18,}+", r"GR1348941[\w-]{20,}+"),
    ),
    ("atlassian", (r"ATBB[A-Za-z0-9]{24,}+",)),
    ("slack", (r"xox[a-z](?:\.xox[a-z])?-[\w-]{10,}+", r"xapp-[0-9]-[\w-]{20,}+", r"xwfp-[\w-]{20,}+")),
    ("discord", (rf"[MNO]{_APART_BY_ONE}[\w-]{{22,27}}\.[\w-]{{6,7}}\.[\w-]{{27,45}}",)),
    ("stripe", (r"[srp]k_(?:live|test|prod)_[A-Za-z0-9_]{10,}+",)),
    ("square", (r"sq0[a-z]{3}-[\w-]{20,}+", r"EAA[A-Za-z0-9_-]{40,}+")),
    ("razorpay", (r"rzp_(?:live|test)_[A-Za-z0-9]{10,}+",)),
    ("shopify", (r"shp[a-z]{2,3}_[0-9a-fA-F]{30,}+",)),
    (
        "plaid",
        (
            rf"access-{_ENVIRONMENT}-{_UUID}",
            rf"public-{_ENVIRONMENT}-{_UUID}",
            rf"link-{_ENVIRONMENT}-{_UUID}",
        ),
    ),
    ("sendgrid", (r"SG\.[\w-]{16,32}\.[\w-]{16,}+",)),
    (
        "mailgun",
        (r"key-[0-9a-f]{32}", r"pubkey-[0-9a-f]{32}", r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![0-9a-f-])"),
    ),
    ("mailchimp", (r"[0-9a-f]{32}-us[0-9]{1,2}(?![0-9])", r"md-[A-Za-z0-9_-]{22}(?![\w-])")),
    ("resend", (rf"re_{_MIXED}[A-Za-z0-9]{{6,}}_?[A-Za-z0-9]{{14,}}+",)),
    ("brevo", (r"x(?:keysib|smtpsib)-[0-9a-f]{64}(?:-[A-Za-z0-9]{16})?",)),
    (
        "llm-key",
        (
            rf"sk-{_DIGIT}[\w-]{{16,}}+",
            r"hf_[A-Za-z0-9]{30,}+",
            r"api_org_[A-Za-z0-9]{30,}+",
            r"gsk_[A-Za-z0-9]{40,}+",
            r"r8_[A-Za-z0-9]{30,}+",
            r"pplx-[A-Za-z0-9]{32,}+",
            r"nvapi-[\w-]{32,}+",
            r"xai-[A-Za-z0-9_-]{40,}+",
            rf"fw_{_DIGIT}[A-Za-z0-9]{{20,}}+",
            r"nvapi-[\w-]{40,}+",
            r"tgp_v1_[\w-]{30,}+",
            r"csk-[a-z0-9]{30,}+",
            r"tvly-[\w-]{24,}+",
            r"jina_[A-Za-z0-9_-]{40,}+",
            r"sk_[0-9a-f]{40,}+",
            rf"pa-{_MIXED}[\w-]{{43}}(?![\w-])",
            r"llx-[A-Za-z0-9]{40,}+",
            rf"rpa_{_DIGIT}[A-Za-z0-9]{{36,}}+",
            r"fc-[0-9a-f]{32}(?![\w-])",
            r"e2b_[0-9a-f]{40}",
            r"wandb_v1_[A-Za-z0-9_]{40,}+",
        ),
    ),
    ("langsmith", (r"ls(?:v2)?_(?:pt|sk|__)_?[0-9a-f]{32}(?:_[0-9a-f]{10})?",)),
    ("pinecone", (r"pcsk_[A-Za-z0-9_]{30,}+",)),
    ("notion", (rf"secret_{_DIGIT}[A-Za-z0-9]{{40,}}+", r"ntn_[A-Za-z0-9]{40,}+")),
    ("airtable", (r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",)),
    ("linear", (r"lin_(?:api|oauth|wh)_[A-Za-z0-9]{32,}+",)),
    ("figma", (r"fig[dourh]{1,2}_[\w-]{36,}+",)),
    ("sentry", (r"sntryu_[0-9a-f]{60,}+",)),
    (
        "newrelic",
        (
            r"NRAK-[A-Z0-9]{27}",
            r"NR(?:II|JS|AA|BR|RA|SP|IQ)-[A-Za-z0-9_-]{19,}+",
            r"eu01xx[0-9a-f]{30,36}NRAL",
            r"[0-9a-f]{30,36}NRAL",
        ),
    ),
    ("grafana", (r"eyJrIjoi[A-Za-z0-9]{30,}+", r"glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}")),
    ("posthog", (r"ph[cxsa]_[A-Za-z0-9]{30,}+",)),
    ("twilio", (r"SK[0-9a-f]{32}(?![A-Za-z0-9])", r"AC[0-9a-f]{32}(?![A-Za-z0-9])")),
    ("mapbox", (r"[spt]k\.eyJ[\w-]{20,}+\.[\w-]{10,}+",)),
    ("dynatrace", (r"dt0[a-z][0-9]{2}\.[A-Z0-9]{8,24}\.[A-Z0-9]{30,}+",)),
    ("pulumi", (r"pul-[0-9a-f]{40}",)),
    ("postman", (r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}", r"PMAT-[A-Z0-9]{26}")),
    ("npm", (r"npm_[A-Za-z0-9]{30,}+",)),
    ("pypi", (r"pypi-AgE[\w-]{40,}+",)),
    ("rubygems", (r"rubygems_[0-9a-f]{40,}+",)),
    ("nuget", (r"oy2[a-z0-9]{43}(?![A-Za-z0-9])",)),
    ("crates", (r"cio[A-Za-z0-9]{32}(?![A-Za-z0-9])",)),
    ("clojars", (r"CLOJARS_[0-9a-z]{50,}+",)),
    ("docker", (r"dckr_[po]at_[\w-]{20,}+",)),
    ("jfrog", (r"AKCp[A-Za-z0-9]{60,}+", r"cmVmdGtu[A-Za-z0-9]{40,}+")),
    ("age-key", (r"AGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{50,}+",)),
    ("tailscale", (r"tskey-[a-z]{2,12}-[\w-]{16,}+",)),
    ("typeform", (r"tfp_[\w-]{40,}+",)),
    ("hubspot", (rf"pat-(?:na|eu)[0-9]-{_UUID}",)),
    (
        "ci-token",
        (
            r"CCIPAT_[\w-]{30,}+",
            r"bk[a-z]{2}_[0-9a-f]{36,}+",
            r"sgp_[0-9a-f_]{40,}+",
            r"pn[ua]_[A-Za-z0-9]{36}",
        ),
    ),
    (
        "payment-key",
        (
            r"EZ[AT]K[A-Za-z0-9]{54}",
            r"FLW(?:SEC|PUB)K(?:_TEST)?-[0-9a-f]{12,}+(?:-X)?",
            r"sk_sbox_[0-9a-z*$#=]{20,}+",
            r"A21AA[\w-]{60,}+",
            rf"(?:live|test)_{_SEVERAL_DIGITS}[A-Za-z0-9]{{30,}}+(?![\w-])",
            rf"live_{_SEVERAL_DIGITS}[\w-]{{40}}(?![\w-])",
        ),
    ),
    (
        "mail-key",
        (r"mlsn\.[0-9a-f]{60,}+", r"1000\.[0-9a-f]{32}\.[0-9a-f]{32}", r"pk_[0-9a-f]{34}(?![A-Za-z0-9])"),
    ),
    (
        "cloud-key",
        (
            r"napi_[0-9a-z]{50,}+",
            rf"npg_{_DIGIT}[A-Za-z0-9]{{12,}}+(?![\w-])",
            rf"rnd_{_DIGIT}[A-Za-z0-9]{{28,}}+",
            r"vercel_blob_rw_[A-Za-z0-9]{10,}_[A-Za-z0-9]{20,}+",
            r"tk-us-[\w-]{48}",
            rf"SCW{_DIGIT}[A-Z0-9]{{17}}(?![\w-])",
            rf"amzn\.mws\.{_UUID}",
            rf"AQVN{_DIGIT}[\w-]{{35,38}}(?![\w-])",
            r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}(?![A-Za-z0-9])",
            # The older tokens of Azure DevOps are just 32 bytes in base32.
            r"(?=(?:[a-z]{0,50}[2-7]){2})[a-z2-7]{52}(?![\w=-])",
            r"dnkey-[\w-]{60,}+",
            rf"2{_APART_BY_ONE}{_MIXED}[A-Za-z0-9]{{26}}_[A-Za-z0-9]{{21}}(?![\w-])",
        ),
    ),
    (
        "service-token",
        (
            r"aio_[A-Za-z0-9]{28}(?![A-Za-z0-9])",
            r"p8e-[0-9a-z]{32}(?![A-Za-z0-9])",
            r"CFPAT-[\w-]{40,}+",
            rf"IGQ{_DIGIT}[\w-]{{80,}}+",
            rf"sl\.(?:u\.)?{_DIGIT}[\w-]{{80,}}+",
            r"fio-u-[\w-]{60,}+",
            r"[ps]at\.[\w-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}",
            r"s-s4t2(?:ud|af)-[0-9a-f]{64}",
            r"rdme_[0-9a-z]{60,}+",
            r"sq[upa]_[0-9a-f]{40}",
            rf"API-{_DIGIT}[A-Z0-9]{{25,32}}(?![\w-])",
            r"ico-[A-Za-z0-9]{32}(?![\w-])",
            r"ddapp_[A-Za-z0-9]{34}",
            r"rootly_[0-9a-f]{60,}+",
            r"snyk_[us]at\.[0-9a-f]{8}\.[\w-]{30,}+",
            r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk",
        ),
    ),
    ("okta", (rf"00(?:(?<![\w.-]00)|(?<=\\[nrt]00)){_MIXED}[\w-]{{40}}(?![\w-])",)),
    # Any other issuer of this common form: a short name, a word for the kind, a long body.
    (
        "token",
        (rf"[a-z]{{2,10}}_(?:live|test|prod|secret|pat|sk|token|apikey)_{_DIGIT}[A-Za-z0-9_]{{20,}}+",),
    ),
)

LOOSE: Final[tuple[tuple[str, str, str], ...]] = (
    ("oGZXIvYXdz", "aws-session", rf"{_free('FwoGZXIvYXdz')}{_BASE64}{{40,}}+=*+"),
    ("oGZXIvYXdz", "aws-session", rf"{_free('FQoGZXIvYXdz')}{_BASE64}{{40,}}+=*+"),
    ("IQoJb3JpZ2lu", "aws-session", rf"{_free('IQoJb3JpZ2lu')}{_BASE64}{{40,}}+=*+"),
    ("whsec_", "stripe", rf"{_free('whsec_')}{_BASE64}{{20,}}+=*+"),
    ("TT3x", "atlassian", rf"{_free('AT[ACS]TT3x')}[\w=-]{{40,}}+"),
    ("sntrys_", "sentry", rf"{_free('sntrys_')}{_BASE64}{{20,}}+=*+(?:_{_BASE64}{{20,}}+)?=*+"),
    ("glc_", "grafana", rf"{_free('glc_')}(?:eyJ|(?=[A-Za-z+/_-]{{0,64}}[0-9])){_BASE64}{{20,}}+=*+"),
    (":APA91b", "gcp-key", rf"{_free('[A-Za-z0-9_-]{11}:APA91b')}[\w-]{{60,}}+"),
    ("_eyJ", "onepassword", rf"{_free('ops_eyJ')}{_BASE64}{{40,}}+=*+"),
    ("fo1_", "fly", rf"{_free('fo1_')}[\w-]{{40,}}+"),
    ("fm2_", "fly", rf"{_free('fm2_')}{_BASE64}{{30,}}+=*+(?:,fm2_{_BASE64}{{30,}}+=*+)*"),
    ("fm1", "fly", rf"{_free('fm1')}[ar]_{_BASE64}{{30,}}+=*+"),
    ("Q~", "azure-secret", r"(?:(?<![\w~.-])|(?<=\\[nrt]))[\w~.-]{3}[0-9]Q~[\w~.-]{28,40}"),
    # The address of a MySQL server in Go: `user:password@tcp(host)/name`.
    ("@tcp(", "url-credentials", r"(?<=\w:)(?![$<{%])[^\s:@/'\"]{1,128}+(?=@tcp\()"),
    (":AA", "telegram", r"(?<![0-9])[0-9]{6,12}:AA[\w-]{28,}+"),
    ("/bot", "telegram", r"(?<=/bot)[0-9]{6,12}(?::|%3[aA])[\w-]{30,}+"),
    ("%2Fbot", "telegram", r"(?<=%2Fbot)[0-9]{6,12}(?::|%3[aA])[\w-]{30,}+"),
    ("elegram", "telegram", r"(?<![0-9])[0-9]{8,10}:[\w-]{35}(?![\w-])"),
    ("Bot(", "telegram", r"(?<=Bot\([\"'])[0-9]{8,10}:[\w-]{35}(?![\w-])"),
    (",v1=", "secret", r"(?<=,v1=)[0-9a-f]{64}(?![0-9a-f])"),
    ("hooks.slack.com/", "webhook", r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/-]{16,}+"),
    ("/webhooks/", "webhook", r"(?<=/webhooks/)[0-9]{15,22}/[\w-]{40,}+"),
    ("webhook.office.com/", "webhook", r"(?<=webhook\.office\.com/)webhookb?2?/[\w@/-]{40,}+"),
    ("outlook.office.com/webhook", "webhook", r"(?<=outlook\.office\.com/webhook)/[\w@/-]{40,}+"),
    ("hooks.zapier.com/hooks/", "webhook", r"(?<=hooks\.zapier\.com/hooks/)catch/[\w/]{8,}+"),
    ("/open-apis/bot/v2/hook/", "webhook", r"(?<=/open-apis/bot/v2/hook/)[0-9a-f-]{30,}+"),
    ("/cgi-bin/webhook/send?key=", "webhook", r"(?<=/cgi-bin/webhook/send\?key=)[0-9a-f-]{30,}+"),
    ("AAAAAAAAAAAAAAAAAAAA", "twitter", r"(?<![\w+/=])A{20,22}+(?=[A-Za-z0-9]{0,100}%)[A-Za-z0-9%]{60,}+"),
    ("$", "braintree", r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}"),
    ("1//0", "gcp-key", rf"{_free('1//0')}[\w-]{{30,}}+"),
    (
        "AQE",
        "adyen",
        rf"{_free('AQE')}(?<!\+AQE)[A-Za-z0-9+/]{{40,}}+=*+(?:-[A-Za-z0-9+/=]{{20,}}+(?:-[\w+/=*.&%()<>-]{{8,40}})?)?",
    ),
    ("sha256~", "openshift", r"(?<!\w)sha256~[\w-]{40,}+"),
    (
        "earer ",
        "authorization",
        r"(?<=\b[Bb]earer )(?:(?=[A-Za-z_.~+/-]{0,80}[0-9])[\w.~+/-]{10,}+=*+|[\w-]{3,}+\.[\w-]{3,}+\.[\w-]{3,}+)",
    ),
    # The credentials of basic authentication are base64: both cases, and a digit or padding.
    (
        "asic ",
        "authorization",
        r"(?<=\b[Bb]asic )(?=[A-Za-z+/]{0,80}[0-9=])(?=[A-Z0-9+/]{0,80}[a-z])(?=[a-z0-9+/]{0,80}[A-Z])[A-Za-z0-9+/]{7,}+=*+",
    ),
)
