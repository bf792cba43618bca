# SPDX-License-Identifier: Apache-2.0
"""The tables of secrets that have a format but no fixed beginning: a part in the middle, an end, or what is around them.

A row is the kind, a part that every such text has (or a dash; `␣` is a space), and the pattern, whose last group is the secret if
it has one. A pattern may continue on indented lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

FAR_NEEDLES: Final = frozenset({"$ANSIBLE_VAULT;", "Private-Lines: ", "elegram"})
"""The needles of secrets over several lines, and one that may be on another line than the secret."""

# Services that take a key in the path of an address: the end of the host, and the path before the key.
_KEY_PATHS: Final = r"""
infura.io@(?:/ws)?/v3/  alchemy.com@/v2/  alchemyapi.io@/v2/  quiknode.pro@/  ankr.com@/\w{2,24}/  chainstack.com@/
blastapi.io@/  getblock.io@/(?:\w{2,8}/)?  moralis-nodes.com@/\w{2,24}/
ifttt.com@/trigger/[\w-]{1,64}/(?:json/)?with/key/  make.com@/(?=[a-z0-9]{30})  integromat.com@/(?=[a-z0-9]{30})
pagerduty.com@/integration/  hc-ping.com@/  cronitor.link@/p/  betterstack.com@/api/v1/heartbeat/
betteruptime.com@/api/v1/heartbeat/  netlify.com@/build_hooks/  vercel.com@/v1/integrations/deploy/
api.cloudflare.com@/[\w/]{1,60}/deploy_hooks/  glip.com@/webhook/  loggly.com@/(?:inputs|bulk)/
sumologic.com@/receiver/v1/http/  torq.io@/v1/webhooks/  gitter.im@/e/  airtable.com@/workflows/v1/genericWebhook/
bitrix24.com@/rest/[0-9]{1,8}/  ftqq.com@/(?=SCT)  day.app@/  webexapis.com@/v1/webhooks/incoming/
calendar.google.com@/calendar/ical/[^\s/]{1,128}/private-
"""


def _rows(table: str) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a table."""
    joined = re.sub(r"^#.*\n", "", table.strip(), flags=re.MULTILINE)
    for row in re.sub(r"\n +", "", joined).splitlines():
        kind, needle, pattern = row.split(maxsplit=2)
        yield kind, "" if needle == "-" else needle.replace("␣", " "), pattern


def _keys_in_paths() -> str:
    """Return the pattern of an address with a key in its path."""
    paths = (row.split("@") for row in _KEY_PATHS.split())
    before = "|".join(rf"(?<={re.escape(host)}){path}" for host, path in paths)
    return rf"://[\w.-]{{4,100}}+(?:{before})([\w@+=~-]{{10,}}+(?:/[\w+=-]{{10,}}+)*+)"


SHAPES: Final = (
    *_rows(r"""
# The address of a MySQL server in Go: `user:password@tcp(host)/name`.
url-credentials @tcp(         (?<=\w:)(?![$<{%])[^\s:@/'\"]{1,128}+(?=@tcp\()
authorization   earer␣        (?<=\b[Bb]earer )(?:
      (?=[A-Za-z_.~+/-]{0,80}[0-9])[\w.~+/-]{10,}+=*+|[\w-]{3,}+\.[\w-]{3,}+\.[\w-]{3,}+)
# The credentials of basic authentication are base64: both cases, and a digit or padding.
authorization   asic␣         (?<=\b[Bb]asic )(?=[A-Za-z+/]{0,80}[0-9=])(?=[A-Z0-9+/]{0,80}[a-z])
      (?=[a-z0-9+/]{0,80}[A-Z])[A-Za-z0-9+/]{7,}+=*+
openweather     appid=        (?<=[?&]appid=)[0-9a-f]{32}(?![\w-])
secret          ,v1=          (?<=,v1=)[0-9a-f]{64}(?![0-9a-f])
codeclimate     CC_TEST_REPORTER_ID CC_TEST_REPORTER_ID[\"']?[ ]?[=:][ ]?[\"']?([0-9a-f]{64})
secret          $ANSIBLE_VAULT; \$ANSIBLE_VAULT;[\w.;-]{1,40}(?:\s|\\++[nr])++([0-9]{20,80}(?:
      (?:\s|\\++[nr])++[0-9]{2,80})*+)
webhook         hook          (?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/+-]{16,}+
      |(?<=/webhooks/)[0-9]{15,22}/[\w-]{40,}+|(?<=\.office\.com/)webhookb?2?/[\w@/-]{30,}+
      |(?<=hooks\.zapier\.com/hooks/)catch/[\w/]{8,}+
      |(?:(?<=hook/)|(?<=hooks/))(?:[A-Za-z0-9]{1,20}/)?(?=[0-9a-fA-F]{0,63}[g-zG-Z])
      (?=(?:[A-Za-z]{0,32}[0-9]){2})[A-Za-z0-9]{24,}+(?:/[\w-]{16,}+)*+|(?<=/open-apis/bot/v2/hook/)[0-9a-f-]{30,}+
      |(?<=/cgi-bin/webhook/send\?key=)[0-9a-f-]{30,}+
# What Bundler sends to the server of a gem, by the host in the name of the variable; some write its dots as single underscores.
secret          BUNDLE_       \bBUNDLE_[A-Z0-9_]{2,80}
      (?:__[A-Z]{2,12}(?![A-Z0-9_])|(?=\W{1,9}[0-9a-f]{8}:[0-9a-f]{8}(?!\w)))
      \\{0,3}[\"']?\]?[ ]?(?:=>?|:)[ ]?\\{0,3}[\"']?([\w.:~+/-]{12,})
# A URL in percent encoding: the password between the user and the host.
url-credentials %40           %3[aA]%2[fF]%2[fF](?>(?:[\w.~-]++|%(?!3[aA]|40|2[fF])){0,64})%3[aA]((?>(?:[\w.~-]++|%
      (?!40|2[fF])){1,64}))%40
private-key     Private-Lines:␣ Private-Lines: \d{1,3}(?:\s|\\++[nr])++([A-Za-z0-9+/=]{1,80}+(?:
      (?:\s|\\++[nr])++[A-Za-z0-9+/=]{1,80}+(?![^\s\\]))*)
"""),
)

# The same, but every match has a long run of token characters, and a text without one is not searched for them.
SHAPES_IN_RUNS: Final = (
    ("url-credentials", "://", _keys_in_paths()),
    *_rows(r"""
azure           ==            (?<![A-Za-z0-9+/])[A-Za-z0-9+/]{76}(?:\+AMC|\+ASt|\+ABa|ACDb|APIM)[A-Za-z0-9+/]{4,6}==
# The keys of other Azure services have the name of the service inside.
azure           AZEG          (?<![A-Za-z0-9+/])[A-Za-z0-9+/]{33,34}AZEG[A-P][A-Za-z0-9+/]{5}=
azure           AIoT          (?<![A-Za-z0-9+/])[A-Za-z0-9+/]{33,34}AIoT[A-P][A-Za-z0-9+/]{5}=
azure           AzCa          (?<![A-Za-z0-9+/])[A-Za-z0-9+/]{33,34}AzCa[A-P][A-Za-z0-9+/]{5}=
azure           ASb           (?<![A-Za-z0-9+/])[A-Za-z0-9+/]{33,34}ASb[A-P][A-Za-z0-9+/]{5}=
azure           AEh           (?<![A-Za-z0-9+/])[A-Za-z0-9+/]{33,34}AEh[A-P][A-Za-z0-9+/]{5}=
azure           ARm           (?<![A-Za-z0-9+/])[A-Za-z0-9+/]{33,34}ARm[A-P][A-Za-z0-9+/]{5}=
azure           +ACR          (?<![A-Za-z0-9+/])[A-Za-z0-9+/]{42}\+ACR[A-Za-z0-9+/]{6}
# The name of a graph before the key.
apollo          service:      (?<![\w:-])service:[\w.-]{1,64}:(?=[A-Za-z_-]{0,20}[0-9])(?=[a-z0-9_-]{0,20}[A-Z])[\w-]{22}(?![\w-])
# The name of a deployment before the key: `prod:happy-otter-123|01...`.
convex          |             (?<![\w:-])(?:prod|dev|preview|project):[\w:-]{3,80}\|[\w+/=-]{30,}+
# The number of the token before it, as Laravel writes it.
laravel         |             (?<![\w.|-])[0-9]{1,9}\|(?=[a-z0-9]{0,40}[A-Z])[A-Za-z0-9_]{40,64}(?![\w-])
salesforce      00D           (?<![A-Za-z0-9])00D[A-Za-z0-9]{12,15}![\w.]{60,}+
# A hash of a password, as crypt writes it.
password        $             (?<![\w$])\$(?:[1256789y]|2[abxy]|gy|apr1|argon2\w{1,2}|krb5\w{2,6}|scrypt
      |pbkdf2[\w-]*)\$[\w./$=,+:@*-]{20,}+
thingsboard     /api/v1/      (?<=/api/v1/)[A-Za-z0-9]{20}(?=/(?:telemetry|attributes|rpc|claim))
roblox          |WARNING:-DO-NOT-SHARE _\|WARNING:-DO-NOT-SHARE[^|\n]{0,200}+\|_[0-9A-F]{60,}+
twitter         AAAAAAAAAAAAAAAAAAAA (?<![\w+/])A{20,22}+(?=[A-Za-z0-9]{0,100}%)[A-Za-z0-9%]{60,}+
telegram        bot           (?:(?<=/bot)|(?<=%2Fbot))[0-9]{6,12}(?::|%3[aA])[\w-]{30,}+
telegram        elegram       (?<![0-9])[0-9]{8,10}:[\w-]{35}(?![\w-])
telegram        Bot(          (?<=Bot\([\"'])[0-9]{8,10}:[\w-]{35}(?![\w-])
meta            |             (?<![\w.-])[0-9]{15,16}\|[\w-]{27,40}(?![\w-])
"""),
)

# Tokens without a fixed beginning, in long runs of characters only. Those without a fixed part, or with an equals sign that may end
# the run early, are tried in every long run.
LONG_SHAPES: Final = (
    *_rows(r"""
terraform       -             [A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}+
newrelic        NRAL          [0-9a-f]{30,36}NRAL
mailchimp       -us           [0-9a-f]{32}-us[0-9]{1,2}(?![0-9])
mailgun         -             [0-9a-h]{32}-[0-9a-h]{8}-[0-9a-h]{8}(?![0-9a-f-])
tableau         ==:           [A-Za-z0-9+/]{22}==:[A-Za-z0-9]{32}(?![A-Za-z0-9])
zhipu           -             [0-9a-f]{32}\.(?=[A-Za-z]{0,15}[0-9])(?=[a-z0-9]{0,15}[A-Z])[A-Za-z0-9]{16}(?![\w.])
maxmind         _mmk          [A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk
azure           AZDO          [A-Za-z0-9]{70,80}AZDO[A-Za-z0-9]{4,8}(?![A-Za-z0-9])
azure           AzFu          [\w-]{44}AzFu[\w-]{4}={0,2}
azure           AzSe          [A-Za-z0-9]{42}AzSe[A-Za-z0-9]{6}
azure           JQQJ9         [A-Za-z0-9]{52}JQQJ9[A-Za-z0-9]{20,}+
# The older tokens of Azure DevOps are just 32 bytes in base32.
azure           -             (?=(?:[a-z]{0,50}[2-7]){2})[a-z2-7]{52}(?![\w=-])
azure-secret    Q~            [\w~.-]{3}[0-9]Q~[\w~.-]{28,40}
gcp-key         :APA91b       [\w-]{11}:APA91b[\w-]{60,}+
dropbox         -             (?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9]{11}AAAAAAAAAA[\w=-]{43}(?![\w=+/-])
telegram        :A            [0-9]{6,16}:A[\w-]{28,}+
discord         -             [MNO](?:(?<![\w.-].)|(?<=\\[nrt].))[\w-]{22,27}\.[\w-]{6,7}\.[\w-]{27,45}
deepl           :fx           [0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}:fx\b
webex           _P            [A-Za-z0-9]{64}_P[A-Z0-9]{3}_[0-9a-f]{8}-[0-9a-f-]{27}
rapidapi        msh           [0-9a-f]{10}msh[0-9a-f]{15}p[0-9a-f]{6,7}jsn[0-9a-f]{12}
# An id and a secret, as of Ghost and Fal, a secret and an id, as of Infobip, and three parts, as of Viber.
token-pair      -             (?=[0-9a-f]{8})(?:(?:[0-9a-f]{24}|[0-9a-f]{8}-
      (?:[0-9a-f]{4}-){3}[0-9a-f]{12}):[0-9a-f]{32,64}|[0-9a-f]{32}-[0-9a-f]{8}-
      (?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{16}(?<![\w-].{16})-[0-9a-f]{16}-[0-9a-f]{16})(?![\w:-])
ably            -             [\w-]{5,7}\.[\w-]{6}:(?=[\w-]{0,40}[0-9])(?=[\w-]{0,40}[A-Z])[\w-]{43}(?![\w-])
# What a node joins a cluster with: `abcdef.0123456789abcdef`, but with letters after f, and more than one digit.
kubernetes      -             (?=[a-z0-9]{6}\.(?:[a-z]{0,15}[0-9]){3}|[a-z]{0,5}[0-9][a-z0-9]{0,5}\.
      (?:[a-z]{0,15}[0-9]){2})[a-z0-9]{6}(?<![\w.-].{6})\.(?=[0-9a-f]{0,15}[g-z])[a-z0-9]{16}(?![\w.-])
truenas         -             [0-9]{1,2}-(?=[a-z0-9]{0,40}[A-Z])[A-Za-z0-9]{64}(?!\w)
# Any other issuer of this common form: a short name, a word for the kind, a body. The words of a name in code are short; a
# hash may follow a word and a dash, as in the tag of an image.
token           -             (?:[a-z][a-z0-9]{1,9}[_-](?:[a-z]{2,10}[_-])?
      (?:live|test|prod|production|sandbox|pat|oat|sk|api|v[0-9]|secret|token|apikey|key)
      |apikey|secret|sk|rk|pat|token)[_-](?:(?<=_)|(?=[0-9a-fA-F]{0,64}[g-zG-Z]))(?=[A-Za-z_.-]{0,64}[0-9])
      (?=(?:[A-Za-z0-9]{0,15}_){0,2}(?=[a-z]{0,15}[A-Z0-9])
      (?=[0-9]{0,15}[A-Za-z])[A-Za-z0-9]{16})[A-Za-z0-9_]{20,}+
# And of this one: a short name and letters of one case with digits, more than a hash or an id has.
token           -             (?:[a-z][a-z0-9]{1,11}[_.-](?=[0-9a-f]{0,40}[g-z])
      (?=(?:[a-z]{0,15}[0-9]){4})[a-z0-9]{32,}+|[A-Z][A-Z0-9]{1,11}[_-](?=[0-9A-F]{0,40}[G-Z])
      (?=(?:[A-Z]{0,15}[0-9]){4})[A-Z0-9]{32,}+)(?![\w-])
# And of this one: short words and a long random body. Ids of requests and payments are shorter, but not those of Vercel.
token           -             (?:(?<![\w.-])|(?<=\\[nrt]))(?!dpl_|sha[0-9])
      (?:[a-z][a-z0-9]{1,11}|[A-Z][A-Z0-9]{1,11}|[A-Z][a-z0-9]{1,11})[_.-](?=[a-z0-9_-]{0,40}[A-Z])
      (?=[A-Z0-9_-]{0,40}[a-z])(?=(?:[A-Za-z_-]{0,32}[0-9]){2})[\w-]{30,}+(?:[.:][\w-]{16,}+)*+
# And of this one: random parts joined by dots, with a short name in front or in both cases.
token           -             [a-z][a-z0-9]{1,7}\.(?=(?:[A-Za-z_-]{0,15}[0-9]){2})[\w-]{16,40}\.
      (?=(?:[A-Za-z_-]{0,15}[0-9]){3})[\w-]{30,}+(?![.@])
      |(?<![\w.-])(?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{8,40}\.(?=[a-z0-9]{0,30}[A-Z])(?=[A-Z0-9]{0,30}[a-z])
      (?=(?:[A-Za-z]{0,20}[0-9]){2})[A-Za-z0-9]{22,}+(?![\w.@-])
"""),
)
