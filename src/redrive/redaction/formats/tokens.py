# SPDX-License-Identifier: Apache-2.0
"""Tables of the keys and tokens that providers issue: prefix, alphabet, length, check and provider.

Only the tables; `token_search.py` finds them. The facts come from the providers' own documentation and from what public secret
scanners list. A length is the shortest that the provider has issued, or a little less, because a secret may be cut off.
"""

from __future__ import annotations

from typing import Final

ALPHABETS: Final = {
    "digit": "0-9",
    "hex": "0-9A-Fa-f",
    "lower": "a-z0-9",
    "upper": "A-Z0-9",
    "alnum": "A-Za-z0-9",
    "url": "A-Za-z0-9_-",
    "dotted": "A-Za-z0-9_.-",
    "padded": "A-Za-z0-9_.=-",
    "base64": "A-Za-z0-9+/_=-",
}
"""The characters of a body, by the name that the table uses; providers write some of them in either case."""

CHECKS: Final = {
    "digit": r"(?=[A-Za-z_./+=-]{0,64}[0-9])",
    "two": r"(?=(?:[A-Za-z]{0,23}[0-9]){2})",
    "three": r"(?=(?:[A-Za-z_=-]{0,20}[0-9]){3})",
    "mixed": r"(?=[a-z0-9_./+=-]{0,40}[A-Z])(?=[A-Za-z_./+=-]{0,40}[0-9])",
}
"""What else a body must have where the prefix is short. No checksum is required: a token with a typing error is a secret, too."""

PREFIXES: Final = """
# provider      prefix                  body, and what it must have
jwt             eyJ                     url{8,}.dotted{0,}                                  apart
jwt             ZXlK                    base64{40,}                                         apart
aws-key         AKIA                    upper{16}
aws-key         ASIA                    upper{16}
aws-key         ABIA                    upper{16}
aws-key         ACCA                    upper{16}
aws-key         AGPA                    upper{16}
aws-key         AIDA                    upper{16}
aws-key         AIPA                    upper{16}
aws-key         ANPA                    upper{16}
aws-key         ANVA                    upper{16}
aws-key         APKA                    upper{16}
aws-key         AROA                    upper{16}
aws-key         ASCA                    upper{16}
aws-key         A3T                     upper{17}
aws-key         ABSK                    base64{30,}
aws-key         bedrock-api-key-        base64{28,}
aws-key         amzn.mws.               uuid
aws-key         amzn1.oa2-cs.v1.        hex{40,}
aws-session     FwoGZXIvYXdz            base64{40,}
aws-session     FQoGZXIvYXdz            base64{40,}
aws-session     IQoJb3JpZ2lu            base64{40,}
gcp-key         AIza                    url{30,}
gcp-key         GOCSPX-                 url{20,}
gcp-key         ya29.                   dotted{20,}
gcp-key         AQ.Ab8                  url{30,}
gcp-key         1//0                    url{30,}                                            apart
digitalocean    doo_v1_                 hex{40,}
digitalocean    dop_v1_                 hex{40,}
digitalocean    dor_v1_                 hex{40,}
alibaba         LTAI                    alnum{12,26}                                        digit
tencent         AKID                    alnum{32,}                                          mixed
yandex          AQVN                    url{35,38}                                          digit
yandex          t1.                     url{1,}.url{80,}                                    digit
yandex          y0_                     url{50,}                                            digit
scaleway        SCW                     upper{17}                                           digit
heroku          HRKU-                   url{30,}
netlify         nfp_                    alnum{30,}
netlify         nfc_                    alnum{30,}
netlify         nfo_                    alnum{30,}
netlify         nfu_                    alnum{30,}
netlify         nfb_                    alnum{30,}
vercel          vcp_                    alnum{24,}
vercel          vci_                    alnum{24,}
vercel          vck_                    alnum{24,}
vercel          vca_                    alnum{24,}
vercel          vcr_                    alnum{24,}
vercel          vercel_                 alnum{24}                                           mixed
vercel          vercel_blob_rw_         alnum{10,}_alnum{20,}
cloudflare      v1.0-                   hex{24}-hex{100,}
cloudflare      cfut_                   url{30,}
cloudflare      cfat_                   url{30,}
cloudflare      cfk_                    url{30,}
cloudflare      cfoa_                   url{30,}
fly             fo1_                    url{40,}
fly             fm1a_                   base64{30,}
fly             fm1r_                   base64{30,}
fly             fm2_                    base64{30,}
supabase        sbp_                    alnum{36,}
supabase        sbp_v0_                 alnum{36,}
supabase        sbp_oauth_              alnum{36,}
supabase        sb_secret_              url{20,}
planetscale     pscale_tkn_             padded{20,}
planetscale     pscale_pw_              padded{20,}
planetscale     pscale_oauth_           padded{20,}
neon            napi_                   alnum{50,}
neon            npg_                    alnum{12,}                                          digit
render          rnd_                    alnum{28,}                                          digit
scalingo        tk-us-                  url{40,}
databricks      dapi                    hex{32,}
databricks      dose                    hex{32,}
databricks      dkea                    hex{32,}
confluent       cflt                    base64{50,}
clickhouse      4b1d                    alnum{38}                                           mixed
mongodb         mdb_sa_sk_              url{30,}
aiven           AVNS_                   url{16,}
vault           hvs.                    url{20,}
vault           hvb.                    url{20,}
vault           hvr.                    url{20,}
vault           s.                      alnum{24}                                           apart two
vault           b.                      alnum{24}                                           apart mixed
vault           r.                      alnum{24}                                           apart mixed
doppler         dp.pt.                  dotted{30,}
doppler         dp.st.                  dotted{30,}
doppler         dp.ct.                  dotted{30,}
doppler         dp.sa.                  dotted{30,}
doppler         dp.said.                dotted{30,}
doppler         dp.scim.                dotted{30,}
doppler         dp.audit.               dotted{30,}
infisical       st.                     hex{20,40}.dotted{16,}                                 three
infisical       st.                     uuid.dotted{16,}
onepassword     ops_eyJ                 base64{40,}
onepassword     A3-                     upper{6}-upper{6}-upper{5}-upper{5}-upper{5}-upper{5}
onepassword     A3-                     upper{6}-upper{11}-upper{5}-upper{5}-upper{5}
age-key         AGE-SECRET-KEY-1        upper{50,}
age-key         AGE-SECRET-KEY-PQ-1     upper{50,}
github          ghp_                    alnum{30,}
github          gho_                    alnum{30,}
github          ghu_                    alnum{30,}
github          ghs_                    alnum{30,}
github          ghr_                    alnum{30,}
github          github_pat_             url{30,}
gitlab          glpat-                  dotted{18,}
gitlab          gldt-                   dotted{18,}
gitlab          glrt-                   dotted{18,}
gitlab          glrtr-                  dotted{18,}
gitlab          glcbt-                  dotted{18,}
gitlab          glptt-                  dotted{18,}
gitlab          glft-                   dotted{18,}
gitlab          glimt-                  dotted{18,}
gitlab          glagent-                dotted{18,}
gitlab          glsoat-                 dotted{18,}
gitlab          gloas-                  dotted{18,}
gitlab          glffct-                 dotted{18,}
gitlab          glwt-                   dotted{18,}
gitlab          GR1348941               url{20,}
gitlab          _gitlab_session=        alnum{20,}
atlassian       ATATT3                  padded{40,}
atlassian       ATCTT3                  padded{40,}
atlassian       ATSTT3                  padded{40,}
atlassian       ATBB                    alnum{24,}
atlassian       BBDC-                   base64{40,}
slack           xoxa-                   url{8,}
slack           xoxb-                   url{8,}
slack           xoxc-                   url{8,}
slack           xoxd-                   base64{8,}
slack           xoxe-                   url{8,}
slack           xoxo-                   url{8,}
slack           xoxp-                   url{8,}
slack           xoxr-                   url{8,}
slack           xoxs-                   url{8,}
slack           xoxe.xoxb-              url{20,}
slack           xoxe.xoxp-              url{20,}
slack           xapp-                   digit{1}-url{16,}
slack           xwfp-                   url{20,}
discord         mfa.                    url{60,}
stripe          sk_live_                url{10,}
stripe          sk_test_                url{10,}
stripe          sk_prod_                url{10,}
stripe          rk_live_                url{10,}
stripe          rk_test_                url{10,}
stripe          rk_prod_                url{10,}
stripe          pk_live_                url{10,}
stripe          pk_test_                url{10,}
stripe          pk_prod_                url{10,}
stripe          whsec_                  base64{20,}
square          sq0atp-                 url{20,}
square          sq0csp-                 url{20,}
square          sq0idp-                 url{20,}
square          sq0ats-                 url{20,}
square          EAAA                    url{22,}                                            digit
meta            EAA                     url{40,}                                            digit
meta            IGQ                     url{80,}                                            digit
razorpay        rzp_live_               alnum{10,}
razorpay        rzp_test_               alnum{10,}
shopify         shpat_                  hex{30,}
shopify         shpca_                  hex{30,}
shopify         shppa_                  hex{30,}
shopify         shpss_                  hex{30,}
shopify         shptka_                 hex{30,}
shopify         shpua_                  hex{30,}
shopify         shprt_                  hex{30,}
plaid           access-sandbox-         uuid
plaid           access-development-     uuid
plaid           access-production-      uuid
plaid           public-sandbox-         uuid
plaid           public-development-     uuid
plaid           public-production-      uuid
plaid           link-sandbox-           uuid
plaid           link-development-       uuid
plaid           link-production-        uuid
braintree       access_token$production$ lower{16}$hex{32}
braintree       access_token$sandbox$   lower{16}$hex{32}
adyen           AQE                     base64{40,}                                         apart digit
easypost        EZAK                    alnum{54}
easypost        EZTK                    alnum{54}
flutterwave     FLWSECK-                alnum{12,}
flutterwave     FLWPUBK-                alnum{12,}
flutterwave     FLWSECK_TEST-           alnum{12,}
flutterwave     FLWPUBK_TEST-           alnum{12,}
checkout        sk_sbox_                alnum{20,}
paypal          A21AA                   url{60,}
gocardless      live_                   url{40}                                             three
gocardless      sandbox_                url{40}                                             three
mollie          live_                   alnum{30,}                                          three
mollie          test_                   alnum{30,}                                          three
lob             live_pub_               hex{28,}
lob             test_pub_               hex{28,}
shippo          shippo_live_            hex{40}
shippo          shippo_test_            hex{40}
duffel          duffel_live_            padded{40,}
duffel          duffel_test_            padded{40,}
paddle          pdl_live_               url{30,}
paddle          pdl_sdbx_               url{30,}
paddle          pdl_ntfset_             url{30,}
sendgrid        SG.                     padded{32,}                                         digit
mailgun         key-                    hex{32}
mailgun         pubkey-                 hex{32}
mailchimp       md-                     url{22}                                             mixed
resend          re_                     alnum{6,}_alnum{14,}                                mixed
resend          re_                     alnum{20,}                                          mixed
brevo           xkeysib-                url{60,}
brevo           xsmtpsib-               url{60,}
mailersend      mlsn.                   hex{60,}
zoho            1000.                   hex{32}.hex{32}
klaviyo         pk_                     hex{34}
adafruit        aio_                    alnum{28}
openai          sk-                     url{16,}                                            digit
openai          sk-proj-                url{16,}
openai          sk-svcacct-             url{16,}
openai          sk-admin-               url{16,}
anthropic       sk-ant-                 url{16,}
openrouter      sk-or-v1-               hex{30,}
cerebras        csk-                    alnum{30,}
huggingface     hf_                     alnum{30,}
huggingface     api_org_                alnum{30,}
groq            gsk_                    alnum{40,}
replicate       r8_                     alnum{30,}
perplexity      pplx-                   alnum{32,}
nvidia          nvapi-                  url{32,}
xai             xai-                    url{40,}
fireworks       fw_                     alnum{20,}                                          digit
together        tgp_v1_                 url{30,}
tavily          tvly-                   url{24,}
jina            jina_                   url{40,}
elevenlabs      sk_                     hex{40,}
voyage          pa-                     url{43}                                             mixed
llamaindex      llx-                    alnum{40,}
runpod          rpa_                    alnum{36,}                                          digit
firecrawl       fc-                     hex{32}
etwob           e2b_                    hex{40}
wandb           wandb_v1_               url{40,}
langsmith       lsv2_pt_                url{32,}
langsmith       lsv2_sk_                url{32,}
langsmith       ls__                    url{32,}
langfuse        sk-lf-                  uuid
pinecone        pcsk_                   url{30,}
notion          secret_                 alnum{40,}                                          digit
notion          ntn_                    alnum{40,}
airtable        pat                     alnum{14}.hex{60,}
linear          lin_api_                alnum{32,}
linear          lin_oauth_              alnum{32,}
linear          lin_wh_                 alnum{32,}
figma           figd_                   url{36,}
figma           figo_                   url{36,}
figma           figu_                   url{36,}
figma           figor_                  url{36,}
figma           figoh_                  url{36,}
asana           2/                      digit{10,}/digit{10,}:hex{30,}
contentful      CFPAT-                  url{40,}
typeform        tfp_                    url{40,}
intercom        dG9rO                   base64{50,}                                         apart mixed
hubspot         pat-na1-                uuid
hubspot         pat-na2-                uuid
hubspot         pat-eu1-                uuid
frameio         fio-u-                  padded{60,}
dropbox         sl.                     padded{80,}                                         digit
dropbox         sl.u.                   padded{80,}                                         digit
readme          rdme_                   alnum{60,}
calcom          cal_live_               hex{30,}
harness         pat.                    url{22}.alnum{24}.alnum{20}
harness         sat.                    url{22}.alnum{24}.alnum{20}
settlemint      sm_aat_                 alnum{16,}
settlemint      sm_pat_                 alnum{16,}
settlemint      sm_sat_                 alnum{16,}
sentry          sntryu_                 hex{60,}
sentry          sntrys_                 base64{20,}
newrelic        NRAK-                   alnum{27,}
newrelic        NRII-                   url{19,}
newrelic        NRJS-                   url{19,}
newrelic        NRAA-                   url{19,}
newrelic        NRBR-                   url{19,}
newrelic        NRRA-                   url{19,}
newrelic        NRSP-                   url{19,}
newrelic        NRIQ-                   url{19,}
newrelic        eu01xx                  hex{30,36}NRAL
grafana         glc_                    base64{32,}                                         digit
grafana         glsa_                   alnum{32}_hex{8}
grafana         eyJrIjoi                base64{30,}
datadog         ddapp_                  alnum{34}
datadog         pub                     hex{32}                                             apart three
dynatrace       dt0c01.                 alnum{8,24}.alnum{30,}
dynatrace       dt0s01.                 alnum{8,24}.alnum{30,}
dynatrace       dt0s02.                 alnum{8,24}.alnum{30,}
dynatrace       dt0s16.                 alnum{8,24}.alnum{30,}
dynatrace       dt0a01.                 alnum{8,24}.alnum{30,}
honeycomb       hcaik_                  lower{40,}
honeycomb       hcbik_                  lower{40,}
honeycomb       hcamk_                  lower{40,}
posthog         phc_                    alnum{30,}
posthog         phx_                    alnum{30,}
posthog         phs_                    alnum{30,}
posthog         pha_                    alnum{30,}
launchdarkly    sdk-                    uuid
launchdarkly    api-                    uuid
launchdarkly    mob-                    uuid
rootly          rootly_                 hex{60,}
statsig         secret-                 alnum{40,}                                          mixed
pagerduty       u+                      url{18}                                             apart mixed
twilio          SK                      hex{32}
twilio          AC                      hex{32}
mapbox          pk.eyJ                  url{20,}.url{10,}
mapbox          sk.eyJ                  url{20,}.url{10,}
mapbox          tk.eyJ                  url{20,}.url{10,}
mapbox          pk.                     lower{60}.lower{22}
pulumi          pul-                    hex{40}
postman         PMAK-                   hex{24}-hex{34}
postman         PMAT-                   upper{26}
npm             npm_                    alnum{30,}
pypi            pypi-AgE                url{40,}
rubygems        rubygems_               hex{40,}
nuget           oy2                     lower{43}
crates          cio                     alnum{32}                                           mixed
clojars         CLOJARS_                alnum{50,}
packagist       packagist_              url{40,}
docker          dckr_pat_               url{20,}
docker          dckr_oat_               url{20,}
artifactory     AKCp                    alnum{60,}
artifactory     cmVmd                   alnum{50,}
tailscale       tskey-                  url{16,}
ngrok           2                       alnum{26}_alnum{21,}                                apart mixed
circleci        CCIPAT_                 url{30,}
circleci        CCIPRJ_                 url{30,}
buildkite       bkua_                   hex{36,}
buildkite       bkct_                   hex{36,}
buildkite       bkat_                   hex{36,}
sourcegraph     sgp_                    alnum{16,}_hex{36,}
sourcegraph     sgp_local_              hex{36,}
sourcegraph     sgp_                    hex{36,}
prefect         pnu_                    alnum{36}
prefect         pna_                    alnum{36}
sonar           squ_                    url{40}
sonar           sqp_                    url{40}
sonar           sqa_                    url{40}
snyk            snyk_uat.               hex{8}.url{30,}
snyk            snyk_sat.               hex{8}.url{30,}
octopus         API-                    upper{25,32}                                        digit
infracost       ico-                    alnum{32}
adobe           p8e-                    alnum{32}
intra           s-s4t2ud-               hex{60,}
intra           s-s4t2af-               hex{60,}
definednet      dnkey-                  padded{60,}
openshift       sha256~                 url{40,}
authress        sc_                     alnum{5,30}.alnum{4,6}.acc_url{10,32}.base64{30,}
authress        ext_                    alnum{5,30}.alnum{4,6}.acc_url{10,32}.base64{30,}
authress        scauth_                 alnum{5,30}.alnum{4,6}.acc_url{10,32}.base64{30,}
authress        authress_               alnum{5,30}.alnum{4,6}.acc_url{10,32}.base64{30,}
freemius        sk_                     url{29}                                             mixed
beamer          b_                      padded{44}                                          apart three
okta            00                      padded{40}                                          apart mixed
telnyx          KEY0                    alnum{24,}_url{20,}
ionic           ion_                    alnum{40,}                                          digit
localstack      ls-                     alnum{8,}-alnum{4}-alnum{4}-alnum{4}-alnum{4,}      three
"""

SHAPES: Final[tuple[tuple[str, str, str], ...]] = (
    # The provider, a part that every such text has, and the pattern: tokens that are known by what surrounds them.
    ("azure", "+AMC", r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{76}\+AMC[A-Za-z0-9+/]{4}=="),
    ("azure", "+ASt", r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{76}\+ASt[A-Za-z0-9+/]{4}=="),
    ("azure", "ACDb", r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{76}ACDb[A-Za-z0-9+/]{4}=="),
    ("twitter", "AAAAAAAAAAAAAAAAAAAA", r"(?<![\w+/=])A{20,22}+(?=[A-Za-z0-9]{0,100}%)[A-Za-z0-9%]{60,}+"),
    ("telegram", "bot", r"(?<=/bot)[0-9]{6,12}(?::|%3[aA])[\w-]{30,}+"),
    ("telegram", "bot", r"(?<=%2Fbot)[0-9]{6,12}(?::|%3[aA])[\w-]{30,}+"),
    ("telegram", "elegram", r"(?<![0-9])[0-9]{8,10}:[\w-]{35}(?![\w-])"),
    ("telegram", "Bot(", r"(?<=Bot\([\"'])[0-9]{8,10}:[\w-]{35}(?![\w-])"),
    ("meta", "|", r"(?<![\w.-])[0-9]{15,16}\|[\w-]{27,40}(?![\w-])"),
    ("secret", ",v1=", r"(?<=,v1=)[0-9a-f]{64}(?![0-9a-f])"),
    ("webhook", "hook", r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/+-]{16,}+"),
    ("webhook", "hook", r"(?<=/webhooks/)[0-9]{15,22}/[\w-]{40,}+"),
    ("webhook", "hook", r"(?<=webhook\.office\.com/)webhookb?2?/[\w@/-]{40,}+"),
    ("webhook", "hook", r"(?<=outlook\.office\.com/webhook)/[\w@/-]{40,}+"),
    ("webhook", "hook", r"(?<=hooks\.zapier\.com/hooks/)catch/[\w/]{8,}+"),
    ("webhook", "hook", r"(?<=/open-apis/bot/v2/hook/)[0-9a-f-]{30,}+"),
    ("webhook", "hook", r"(?<=/cgi-bin/webhook/send\?key=)[0-9a-f-]{30,}+"),
)

SHORT_SHAPES: Final[tuple[tuple[str, str, str], ...]] = (
    # The same, for secrets that may be shorter than a run that is searched.
    ("slack", "xox", r"(?<![A-Za-z0-9])xox[a-z]-[\w-]{8,}+"),
    # The address of a MySQL server in Go: `user:password@tcp(host)/name`.
    ("url-credentials", "@tcp(", r"(?<=\w:)(?![$<{%])[^\s:@/'\"]{1,128}+(?=@tcp\()"),
    (
        "authorization",
        "earer ",
        r"(?<=\b[Bb]earer )(?:(?=[A-Za-z_.~+/-]{0,80}[0-9])[\w.~+/-]{10,}+=*+|[\w-]{3,}+\.[\w-]{3,}+\.[\w-]{3,}+)",
    ),
    # The credentials of basic authentication are base64: both cases, and a digit or padding.
    (
        "authorization",
        "asic ",
        r"(?<=\b[Bb]asic )(?=[A-Za-z+/]{0,80}[0-9=])(?=[A-Z0-9+/]{0,80}[a-z])(?=[a-z0-9+/]{0,80}[A-Z])[A-Za-z0-9+/]{7,}+=*+",
    ),
)

LONG_SHAPES: Final[tuple[tuple[str, str], ...]] = (
    # Tokens without a fixed beginning; tried only in long runs of characters.
    ("terraform", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}+"),
    ("newrelic", r"[0-9a-f]{30,36}NRAL"),
    ("mailchimp", r"[0-9a-f]{32}-us[0-9]{1,2}(?![0-9])"),
    ("mailgun", r"[0-9a-h]{32}-[0-9a-h]{8}-[0-9a-h]{8}(?![0-9a-f-])"),
    ("maxmind", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    ("azure", r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}(?![A-Za-z0-9])"),
    ("azure", r"[\w-]{44}AzFu[\w-]{4}={0,2}"),
    ("azure", r"[A-Za-z0-9]{42}AzSe[A-Za-z0-9]{6}"),
    # The older tokens of Azure DevOps are just 32 bytes in base32.
    ("azure", r"(?=(?:[a-z]{0,50}[2-7]){2})[a-z2-7]{52}(?![\w=-])"),
    ("azure-secret", r"[\w~.-]{3}[0-9]Q~[\w~.-]{28,40}"),
    ("gcp-key", r"[\w-]{11}:APA91b[\w-]{60,}+"),
    ("dropbox", r"(?=[A-Za-z]{0,10}[0-9])[A-Za-z0-9]{11}AAAAAAAAAA[\w=-]{43}"),
    ("telegram", r"[0-9]{6,16}:A[\w-]{28,}+"),
    ("discord", r"[MNO](?:(?<![\w.-].)|(?<=\\[nrt].))[\w-]{22,27}\.[\w-]{6,7}\.[\w-]{27,45}"),
    # Any other issuer of this common form: a short name, a word for the kind, a long body.
    (
        "token",
        r"[a-z]{2,10}_(?:live|test|prod|secret|pat|sk|token|apikey)_(?=[A-Za-z_.-]{0,64}[0-9])[A-Za-z0-9_]{20,}+",
    ),
)
