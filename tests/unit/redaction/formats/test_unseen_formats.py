# SPDX-License-Identifier: Apache-2.0
"""Formats written by hand, apart from the table of the redactor, in every context; values known by their name; and what must stay.

A template is text with parts in braces: an alphabet and a length, as in `{hex:32}`, or a UUID.
"""

from __future__ import annotations

import random
import re

import pytest

from redrive.redaction import redact_text
from tests.unit.redaction.formats.test_format_table import ALPHABETS, CONTEXTS, survives

DRAWS = 5
MISSED_MAX = 0.01
PART = re.compile(r"\{(?:(\w+):([0-9]+)|uuid)\}")
UUID_PARTS = (8, 4, 4, 4, 12)

TABLE = r"""
1password                        A3-{upper:6}-{upper:6}-{upper:5}-{upper:5}-{upper:5}-{upper:5}
1password-recovery               1PRK-{upper:4}-{upper:4}-{upper:4}-{upper:4}-{upper:4}-{upper:4}-{upper:4}-{upper:4}
1password-service                ops_eyJ{base64:260}=
ably                             {alnum:6}.{alnum:6}:7B{alnum:41}
adobe                            p8e-{url:31}a
aftership                        asat_{hex:32}
akamai                           akab-{lower:16}-{lower:16}
alchemy                          alcht_{alnum:30}
amazon-login                     Atza|IwEB{url:200}a
an-unknown-provider              wxyz_7Kq{alnum:8}3{alnum:8}x{alnum:14}
an-unknown-provider-with-a-word  wxyz_bot_R4t{alnum:8}3{alnum:8}x{alnum:10}
anyscale                         esecret_{lower:26}
apify                            apify_api_{alnum:36}
arcjet                           ajkey_{lower:26}
artifactory                      AKCp{alnum:69}
artifactory-older                AKC{alnum:44}
artifactory-reference            cmVmd{alnum:59}
artifactory-reference-urlsafe    cmVmdGtuO{url:54}a
aspnet                           CfDJ8{url:120}a
atlassian-organisation           ATCO{base64:70}
authress                         ext_{lower:20}.{lower:4}.acc-{lower:16}.{alnum:60}
aws-appsync                      da2-{lower:26}
aws-pair                         AKIA{upper:16}:{base64:40}
axiom                            xaat-{uuid}
azure-ad                         {alnum:3}8Q~{alnum:33}a
azure-ai                         {alnum:52}JQQJ99BAC{alnum:23}
azure-batch                      {base64:76}+ABa{base64:6}==
azure-devops                     {alnum:76}AZDO{alnum:4}
azure-event-grid                 {alnum:33}AZEGA{alnum:5}=
azure-registry                   {alnum:42}+ACRA{alnum:5}
azure-service-bus                {base64:33}+ASbB{alnum:5}=
azure-storage                    {base64:76}+ASt{base64:6}==
bcrypt                           $2b$12${alnum:53}
bedrock                          ABSK{base64:120}==
bedrock-short                    bedrock-api-key-{alnum:28}
bitwarden                        0.{uuid}.{alnum:30}:{base64:22}==
buildkite                        bkua_{lower:40}
cartesia                         sk_car_{alnum:22}
castai                           castai_v1_{lower:60}
checkly                          cu_{hex:32}
clickup                          pk_{digit:8}_{upper:32}
close                            api_{alnum:22}.{alnum:22}
coderabbit                       cr-{hex:58}
composio                         ak_{alnum:20}
composio-organisation            oak_{alnum:20}
configcat                        configcat-sdk-1/{url:22}/{url:22}
convex                           prod:happy-otter-123|01{hex:80}
crypt                            $6${alnum:16}${alnum:86}
databento                        db-{alnum:29}
datastax                         AstraCS:{alnum:24}:{hex:64}
daytona                          dtn_{hex:64}
deepl                            {uuid}:fx
deno                             ddp_{alnum:36}
dify                             app-{alnum:24}
digitalocean                     DO00{upper:16}
digitalocean-system              dos_v1_{hex:64}
dingtalk                         SEC{hex:64}
doppler                          dp.pt.{lower:43}
dropbox-older                    {alnum:11}AAAAAAAAAA{alnum:43}
dynatrace                        dt0c01.{lower:24}.{lower:64}
ebay                             PRD-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}
ecwid                            secret_4{alnum:31}
elastic                          essu_{alnum:60}==
entra                            1.A{url:120}.{url:90}a
exoscale                         EXO{alnum:26}
extended-key                     xprv9s21ZrQH143K{alnum:95}
fal                              {uuid}:{hex:32}
fernet                           gAAAAABm{url:120}==
flutterwave                      FLWSECK_TEST-{hex:32}-X
flutterwave-encryption           FLWSECK_TEST{hex:12}
flutterwave-live                 FLWSECK-{hex:32}-{lower:12}-X
frameio                          fio-u-{url:63}a
gcp-hmac                         GOOG1E{upper:57}
ghost                            {hex:24}:{hex:64}
google                           4/0A{url:69}a
harness                          pat.{alnum:22}.{alnum:24}.{alnum:20}
healthchecks                     hcw_{alnum:28}
hex                              hxtw_{hex:96}
honeybadger                      hbp_{alnum:36}
infobip                          {hex:32}-{uuid}
inngest                          signkey-prod-{hex:64}
jetbrains                        perm:{alnum:16}.{alnum:20}.{alnum:30}
kaggle                           KGAT_{hex:32}
klarna                           klarna_live_api_{base64:60}
kolide                           k2sk_v1_{alnum:24}
kubernetes                       {lower:5}7.4{lower:6}2{lower:6}9z
laravel                          base64:{base64:43}=
laravel-sanctum                  12|{alnum:48}
linkedin                         WPL_AP1.{alnum:16}.{alnum:6}==
luma                             luma-{uuid}-{uuid}
mailgun-small-letters            key-{lower:32}
maxmind                          {alnum:6}_{alnum:29}_mmk
mercadopago                      APP_USR-{digit:16}-{digit:6}-{hex:32}-{digit:9}
meta-threads                     THAA{alnum:120}
midtrans                         Mid-server-{url:23}a
minimax                          MINIMAX-{upper:8}-{upper:8}-{upper:8}-{upper:8}
n8n                              n8n_api_{hex:40}
nats                             SU{base32:56}
netbird                          nbp_{alnum:36}
newrelic-pixie                   px-dep-{uuid}
nostr                            nsec1{lower:58}
ntlm                             TlRMTVNTUAADAAAA{base64:140}
okta                             00{url:39}a
omise                            skey_5{lower:18}
onesignal                        os_v2_app_{lower:103}
onfido                           api_live.{alnum:11}.{alnum:32}
onfido-region                    api_live_kn.{alnum:11}.{alnum:32}
openvpn                          -----BEGIN OpenVPN Static key V1-----\n{hex:32}\n{hex:32}\n-----END OpenVPN Static key V1-----
openvsx                          ovsxat_{uuid}
ory                              ory_at_{url:42}a
ory-signed                       ory_at_{url:42}a.{url:42}a
pangea                           pts_{lower:32}
paseto                           v4.local.{url:100}a
paystack                         sk_live_{lower:40}
pem-in-base64                    LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t{base64:200}
pinterest                        pina_{url:40}a
polar                            polar_oat_{alnum:43}
portainer                        ptr_{base64:43}=
pubnub                           sec-c-{alnum:48}
pushbullet                       o.{alnum:32}
rancher                          token-{lower:5}:{lower:54}
rapidapi                         {hex:10}msh{hex:15}p1{hex:6}jsn{hex:12}
rapidapi-any-project             {hex:10}msh{hex:15}p{hex:6}jsn{hex:12}
riot                             RGAPI-{uuid}
roblox                           _|WARNING:-DO-NOT-SHARE-THIS.--Sharing-this-will-allow-someone-to-log-in-as-you.|_{upper_hex:300}
runway                           key_{hex:128}
salesforce                       3MVG9{url:79}a
salesforce-session               00D{alnum:12}!{alnum:96}
segment                          sgp_{alnum:64}
sendgrid                         SG.{lower:22}.{lower:43}
sendgrid-small-letters           sg.{lower:22}.{lower:43}
settlemint                       sm_pat_{alnum:16}
smtp2go                          api-4{upper_hex:31}
socket                           sktsec_{url:40}_api
square                           EAAA{url:59}a
square-sandbox                   sandbox-sq0csb-{url:43}
square-short                     sq0atp-{url:22}
stackhawk                        hawk.{alnum:20}.{alnum:20}
stytch                           secret-live-{url:34}a=
swarm                            SWMTKN-1-{lower:50}-{lower:25}
swarm-unlock                     SWMKEY-1-{base64:43}
tableau                          {alnum:22}==:{alnum:32}
terraform                        {lower:14}.atlasv1.{url:62}
terraform-padded                 {lower:14}.atlasv1.{lower:40}={lower:20}
tinybird                         p.eyJ{url:60}.{url:43}
tolgee                           tgpat_{lower:50}
trello                           ATTA{hex:64}{upper:8}
trigger                          tr_dev_{alnum:20}
truenas                          3-{alnum:64}
twilio                           SK{hex:32}
twilio-small-letters             SK{lower:32}
unkey                            unkey_7{alnum:21}
unknown-provider-in-capitals     WXYZ-{upper:40}
unknown-provider-in-parts        wxyz.{lower:24}.{lower:43}
unknown-provider-in-small-letters wxyz_{lower:48}
unknown-provider-with-a-dash     wxyz-live-{lower:40}
unknown-provider-with-a-version  wxyz_v1_{lower:48}
unknown-provider-with-dashes     wxyz-bot-{url:44}a
unknown-provider-with-digits     w1x2_{alnum:40}
unknown-provider-with-dots       Wxyz.{url:44}a
unleash                          default:development.{hex:56}
valtown                          vtwn_3{alnum:27}
vault-legacy                     s.{lower:24}
vault-legacy-batch               b.AAAAAQ{url:155}a
viber                            {hex:16}-{hex:16}-{hex:16}
vkontakte                        vk1.a.{url:120}
voiceflow                        VF.DM.{hex:24}.{alnum:16}
wallet                           K{base58:51}
warpstream                       aks_{hex:64}
webex                            {alnum:64}_PF84_{uuid}
wepay                            PRODUCTION_{hex:64}
woocommerce                      cs_{hex:40}
xata                             xau_{alnum:43}
xendit                           xnd_production_{alnum:60}
yandex-aws                       YC{url:37}a
yandex-dictionary                dict.1.1.20260101T101010Z.{hex:16}.{hex:40}
yandex-key                       YCAJ{url:20}a
yandex-oauth                     y1_{url:54}a
zhipu                            {hex:32}.{alnum:16}
"""
FORMATS: dict[str, str] = dict(row.split(maxsplit=1) for row in TABLE.strip().splitlines())

NAMED = {
    "service_access": "{alnum:24}",
    "coinbase_access": "{lower:64}",
    "partnerApi": "{alnum:32}",
    "sonar.login": "{hex:40}",
    "etsy_keystring": "{lower:24}",
    "asana_pat": "{hex:40}",
    "build_key": "{uuid}",
    "VAULT_SECRET_ID": "{uuid}",
    "X-Metabase-Session": "{uuid}",
    "Jenkins-Crumb": "{hex:32}",
    "agora_app_certificate": "{hex:32}",
    "BUNDLE_GEMS__EXAMPLE__COM": "{hex:8}:{hex:8}",
    "pwd": "!b{alnum:6}@C?{alnum:6}$",
}


AROUND = (
    "https://chat.example.org/hooks/{lower:26}",
    "https://example.org/api/v1/{lower:20}/telemetry",
    "https://outlook.office.com/webhook/{uuid}",
    "https://acme.tines.com/webhook/{lower:32}/{lower:32}",
    "https://chat.example.org/hooks/{alnum:17}/{alnum:48}",
    "https://mainnet.infura.io/v3/{hex:32}",
    "wss://eth-mainnet.g.alchemy.com/v2/{url:31}a",
    "https://maker.ifttt.com/trigger/door/with/key/{url:42}a",
    "https://events.pagerduty.com/integration/{hex:32}/enqueue",
    "https://api.cloudflare.com/client/v4/pages/webhooks/deploy_hooks/{uuid}",
    "https://api.example.org/data/2.5/weather?q=Oslo&appid={hex:32}",
    "https://api.example.org/rpc?network=ethereum&dkey={alnum:44}",
    "deploy --newrelic-api-id {upper:64}",
    "loaded cloudant_api_key={letters:24} from env",
    "export BUNDLE_GEMS_EXAMPLE_COM={hex:8}:{hex:8}",
    'new NetworkCredential("build", "{alnum:16}")',
    'new DirectoryEntry("LDAP://example.org", "svc@example.org", "{alnum:16}")',
    "new mysqli('db.example.org', 'app', '{alnum:16}', 'orders')",
    "schtasks /create /tn Backup /ru CORP\\svc /rp {alnum:14} /sc daily",
    "PSEXEC 10.0.94.120 -u Administrator -p {alnum:14} CMD",
    "<AdministratorPassword><Value>{alnum:20}</Value></AdministratorPassword>",
    "the password for user 'ada' is '{alnum:13}'",
    'File "a.py", line 3, in f\n    f("Server=db01;Uid=svc;Pwd={alnum:6}!{alnum:6};")',
)


def drawn(template: str, draw: random.Random) -> str:
    """Return a text of the template."""

    def part(found: re.Match[str]) -> str:
        if found[1] is None:
            return "-".join("".join(draw.choices(ALPHABETS["hex"], k=size)) for size in UUID_PARTS)
        return "".join(draw.choices(ALPHABETS[found[1]], k=int(found[2])))

    return PART.sub(part, template)


@pytest.mark.parametrize("context", CONTEXTS)
def test_hides_formats_written_by_hand(context: str) -> None:
    draw = random.Random(context)
    secrets = [(name, drawn(FORMATS[name], draw)) for name in FORMATS for _ in range(DRAWS)]

    missed = [
        (name, secret) for name, secret in secrets if survives(secret, redact_text(CONTEXTS[context](secret)))
    ]

    assert len(missed) <= MISSED_MAX * len(secrets), missed
    assert max((sum(name == other for other, _ in missed) for name in FORMATS), default=0) < DRAWS, missed


@pytest.mark.parametrize(
    "carrier", ["{}={}", "{}: {}", '"{}": "{}", "attempt": 3', "refused {}='{}' at once"]
)
def test_hides_random_values_after_less_certain_names(carrier: str) -> None:
    draw = random.Random(carrier)
    secrets = [(name, drawn(NAMED[name], draw)) for name in NAMED for _ in range(DRAWS)]

    texts = [(secret, carrier.format(name, secret)) for name, secret in secrets]

    assert [text for secret, text in texts if secret in redact_text(text)] == []


@pytest.mark.parametrize("template", AROUND)
def test_hides_what_its_surroundings_tell(template: str) -> None:
    draw = random.Random(template)
    around = template.index("{")
    before, after = template[:around], template[template.rindex("}") + 1 :]
    secrets = [drawn(template[around : len(template) - len(after)], draw) for _ in range(DRAWS)]

    assert [secret for secret in secrets if secret in redact_text(f"{before}{secret}{after}")] == []


@pytest.mark.parametrize(
    "line",
    [
        "authorization: policy 'orders.read' denied",
        "relation orders_test_database_migration_0042 does not exist",
        "image registry.example.org/orders-prod-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b was pulled",
        "POST https://example.org/webhooks/550e8400-e29b-41d4-a716-446655440000/deliveries",
        "POST https://example.org/webhooks/507f1f77bcf86cd799439011/deliveries",
        "token=expired and the request was refused",
        "tests/test_orders.py::orders_test_function_for_orders_v2 PASSED",
        "app_token_refresh_interval_seconds_2=30",
        "django_secret_rotation_schedule_v2_enabled",
        "replica acme_prod_orders_replica_set_01_primary is behind",
        "queue cluster_prod_eu_west_1_worker_pool_a is empty",
        "backup orders_prod_20261118010203 finished",
        "step check_TheOrderOfCustomer42IsChargedExactly2Times has passed",
        "dpl_5WJWYSyB7BpgTj3EuwF37WMRBXBtPQ2iTMJHJBJyRfd is ready",
        "public_key=MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEm1p2kqk0v3eX7n8d9b0a",
        "charge ch_AcfdUyXjHXu9lNzI2Trfo91z refunded by re_0TsvYg5oRHyusJPCSXJ6PdCQ",
        "integrity sha512-q0bXwrJJZPzZsG9sQxFXoXzEoCSvtgBKdwTcWmlLRCaMz5dQLKl9pCBVnLzEk2c3gJCLfO==",
        "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT was cut off",
        "alarm TargetTracking-service/default/web-app-AlarmHigh-d4f0770c-b46e-434a-a60f-3b36d653feca is on",
        "role eks-service-role-AWSServiceRoleForAmazonEKS-J7ONKE3BQ4PI is missing",
        "user_01h2xcejqtf2nbrexx3vqjhp41 signed in, session 7f3e2d1c",
        "layer_9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 was pulled",
        "last_login=2026-11-18T12:00:00.123456Z access=public api=v2",
        "GET /api/v1/orders/1842937/items/3 in cluster.local.4 took 3 ms",
        "idempotency_key=7b0c8b8e-6a4e-4f6e-9d3c-2b8f8a6c1d2e cache_key=550e8400-e29b-41d4-a716-446655440000",
        "request req_011CSHoEeqs5C35K2UUqR7Fy of payment pi_3MtwBwLkdIwHu7ix28a3tqPa failed",
    ],
)
def test_names_ids_and_hashes_that_look_like_tokens_stay(line: str) -> None:
    assert redact_text(line) == line


@pytest.mark.parametrize("is_adjacent", [True, False])
def test_a_long_text_is_redacted_like_its_lines(*, is_adjacent: bool) -> None:
    draw = random.Random("lines")
    lines = [drawn(template, draw) for template in AROUND if "\n" not in template]
    gap = "\n" if is_adjacent else "\nordinary words\n"
    filler = "ordinary words of a log\n" * 200

    text = redact_text(f"{filler}{gap.join(lines)}\n{filler}")

    assert text == f"{filler}{gap.join(map(redact_text, lines))}\n{filler}"


def test_in_a_long_text_a_secret_may_continue_on_the_next_line() -> None:
    filler = "ordinary words of a log\n" * 200

    text = redact_text(
        f"{filler}machine example.org\n  login ada password hunter2xyz\ncurl -s \\\n  -u ada:hunter3xyz\n"
    )

    assert "hunter" not in text
