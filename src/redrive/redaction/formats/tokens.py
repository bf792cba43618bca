# SPDX-License-Identifier: Apache-2.0
"""The table of the keys and tokens that providers issue: prefix, alphabet, length, check and provider.

Only the table; `token_search.py` finds them, and `shapes.py` lists those without a fixed beginning. The facts come from the
providers' own documentation and from what public secret scanners list. A length is the shortest that the provider has issued, or
a little less, because a secret may be cut off.
"""

from __future__ import annotations

from typing import Final

ALPHABETS: Final = {
    "digit": "0-9",
    "hex": "0-9A-Fa-f",
    "lower": "a-z0-9",
    "upper": "A-Z0-9",
    "alnum": "A-Za-z0-9",
    "base58": "1-9A-HJ-NP-Za-km-z",
    "url": "A-Za-z0-9_-",
    "dotted": "A-Za-z0-9_.-",
    "padded": "A-Za-z0-9_.=-",
    "base64": "A-Za-z0-9+/_=-",
}
"""The characters of a body, by the name that the table uses; providers write some of them in either case."""

# Capitals closer to each other than in most names in camel case, for the few tokens without a digit.
_CAPITALS: Final = "[a-z_-]{0,8}(?:[A-Z]{1,6}[a-z_-]{1,3}){3}[A-Z]"
CHECKS: Final = {
    "digit": r"(?=[A-Za-z_./+=-]{0,64}[0-9])",
    "two": rf"(?=(?:[A-Za-z]{{0,23}}[0-9]){{2}}|{_CAPITALS})",
    "three": r"(?=(?:[A-Za-z_=-]{0,20}[0-9]){3})",
    "mixed": rf"(?=[a-z0-9_./+=-]{{0,40}}[A-Z])(?=[A-Za-z_./+=-]{{0,40}}[0-9]|{_CAPITALS})",
}
"""What else a body must have where the prefix is short. No checksum is required: a token with a typing error is a secret, too."""

PREFIXES: Final = """
# provider     body                       checks       prefixes
jwt            url{8,}.dotted{0,}         apart        eyJ
jwt            base64{40,}                apart        ZXlK
aws-key        upper{16}:base64{40}       -            AKIA ASIA
aws-key        upper{16}                  -            AKIA ASIA ABIA ACCA AGPA AIDA AIPA ANPA ANVA APKA AROA ASCA
aws-key        upper{17}                  -            A3T
aws-key        base64{28,}                -            ABSK bedrock-api-key-
aws-key        url{100,}                  -            IwEB
aws-key        uuid                       -            amzn.mws.
aws-key        hex{40,}                   -            amzn1.oa2-cs.v1.
aws-key        lower{26}                  apart,digit  da2-
aws-session    base64{40,}                -            FwoGZXIvYXdz FQoGZXIvYXdz IQoJb3JpZ2lu
gcp-key        url{20,}                   -            AIza AQ.Ab8 GOCSPX-
gcp-key        dotted{20,}                -            ya29.
gcp-key        url{30,}                   apart        1//0
gcp-key        url{60,}                   apart        4/0A
gcp-key        upper{20,}                 digit        GOOG
digitalocean   hex{40,}                   -            doo_v1_ dop_v1_ dor_v1_ dos_v1_
digitalocean   upper{16}                  -            DO00
alibaba        alnum{12,26}               digit        LTAI
alibaba        alnum{16,}                 mixed        STS.
baidu          alnum{20,}/hex{40}         -            bce-v3/ALTAK-
tencent        alnum{32,}                 mixed        AKID
yandex         url{35,38}                 digit        AQVN
yandex         padded{80,}                digit        t1. c1.
yandex         url{50,}                   digit        y0_ y1_ y2_ y3_
yandex         url{21}                    mixed        YCAJ
yandex         url{38}                    apart,mixed  YC
yandex         alnum{16}.hex{16}.hex{40}  -            dict.1.1. trnsl.1.1. pdct.1.1.
scaleway       upper{17}                  digit        SCW
akamai         lower{16}-lower{16}        -            akab-
backblaze      base64{28}                 apart,mixed  K00
volcengine     base64{36,}                mixed        AKLT
azure          dotted{150,}               apart,mixed  0.A 1.A
heroku         url{30,}                   -            HRKU-
netlify        alnum{30,}                 -            nfp_ nfc_ nfo_ nfu_ nfb_
vercel         url{24,}                   digit        vcp_ vci_ vck_ vca_ vcr_
vercel         alnum{24}                  mixed        vercel_
vercel         alnum{10,}_alnum{20,}      -            vercel_blob_rw_
trigger        url{20,}                   -            tr_dev_ tr_stg_ tr_prod_ tr_preview_
inngest        url{2,20}-hex{40,}         -            signkey-
cloudflare     hex{24}-hex{100,}          -            v1.0-
cloudflare     url{30,}                   -            cfut_ cfat_ cfk_ cfoa_
fly            base64{30,}                -            fo1_ fm1a_ fm1r_ fm2_
supabase       alnum{36,}                 -            sbp_ sbp_v0_ sbp_oauth_
supabase       url{20,}                   -            sb_secret_
planetscale    padded{20,}                -            pscale_tkn_ pscale_pw_ pscale_oauth_
neon           alnum{12,}                 digit        npg_
xata           alnum{22,}                 -            xau_
fauna          url{37}                    apart,mixed  fnA
render         alnum{28,}                 digit        rnd_
databricks     hex{32,}                   -            dapi dose dkea
confluent      base64{50,}                -            cflt
clickhouse     alnum{38}                  mixed        4b1d
mongodb        url{30,}                   -            mdb_sa_sk_
aiven          url{16,}                   -            AVNS_
vault          url{20,}                   -            hvs. hvb. hvr.
vault          url{90,}                   apart,mixed  b. s. r.
vault          alnum{24}                  apart,two    s.
vault          alnum{24}                  apart,mixed  b. r.
doppler        dotted{30,}                -            dp.pt. dp.st. dp.ct. dp.sa. dp.said. dp.scim. dp.audit.
infisical      hex{20,40}.dotted{16,}     three        st.
infisical      dotted{60,}                apart,digit  st.
infisical      uuid.dotted{16,}           -            st.
onepassword    base64{40,}                -            ops_eyJ
onepassword    upper{6}-upper{6}-upper{5}-upper{5}-upper{5}-upper{5} -            A3-
onepassword    upper{6}-upper{11}-upper{5}-upper{5}-upper{5} -            A3-
onepassword    upper{4}-upper{4}-upper{4}-dotted{19,} -            1PRK-
bitwarden      uuid.alnum{30}:base64{20,} -            0.
unkey          alnum{20,}                 digit        unkey_
unkey          alnum{16,28}               apart,mixed  key_
stytch         padded{30,}                -            secret-live- secret-test-
age-key        upper{50,}                 -            AGE-SECRET-KEY-1 AGE-SECRET-KEY-PQ-1
github         alnum{30,}                 -            ghp_ gho_ ghu_ ghs_ ghr_
github         url{30,}                   -            github_pat_
github         digit{1,}_dotted{60,}      -            ghs_
github         hex{40}                    apart        v1.
gitlab         dotted{18,}                -            glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glimt-
gitlab         dotted{18,}                -            glagent- glsoat- gloas- glffct- glwt-
gitlab         url{20,}                   -            GR1348941
atlassian      padded{40,}                -            ATATT3 ATCTT3 ATSTT3
atlassian      base64{40,}                digit        ATCO BBDC-
atlassian      alnum{24,}                 -            ATBB
atlassian      alnum{64,}                 -            ATTA
slack          url{8,}                    -            xoxa- xoxb- xoxc- xoxe- xoxo- xoxp- xoxr- xoxs-
slack          base64{8,}                 -            xoxd-
slack          url{20,}                   -            xwfp-
slack          digit{1,16}-base64{16,}    -            xapp-
discord        url{60,}                   -            mfa.
stripe         url{10,}                   -            sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_
stripe         url{10,}                   -            pk_live_ pk_test_ pk_prod_
stripe         base64{20,}                -            whsec_
square         url{20,}                   -            sq0atp- sq0csp- sq0idp- sq0ats- sq0atb- sq0csb-
square         base64{22,}                digit        EAAA
meta           url{40,}                   digit        EAA IGQ IGAA THAA
razorpay       alnum{10,}                 -            rzp_live_ rzp_test_
shopify        alnum{30,}                 -            shpat_ shpca_ shppa_ shpss_ shptka_ shpua_ shprt_
plaid          uuid                       -            access-sandbox- access-development- access-production-
plaid          uuid                       -            public-sandbox- public-development- public-production-
plaid          uuid                       -            link-sandbox- link-development- link-production-
braintree      lower{16}$hex{32}          -            access_token$production$ access_token$sandbox$
adyen          base64{40,}                apart,digit  AQE
easypost       alnum{54}                  -            EZAK EZTK
flutterwave    url{12,}                   -            FLWSECK- FLWPUBK- FLWSECK_TEST FLWPUBK_TEST
asaas          base64{24,}                -            $aact_
mercadopago    dotted{40,}                -            APP_USR-
midtrans       url{10,}                   digit        Mid-server- SB-Mid-server- Mid-client- SB-Mid-client-
omise          alnum{17,}                 digit        skey_ skey_test_ skey_live_
xendit         alnum{40,}                 -            xnd_production_ xnd_development_
checkout       alnum{20,}                 -            sk_sbox_
checkout       lower{26}                  digit        sk_
checkout       uuid                       -            sk_ pk_
paypal         url{60,}                   -            A21AA
mollie         alnum{30,}                 three        live_ test_
lob            hex{28,}                   -            live_pub_ test_pub_
duffel         padded{40,}                -            duffel_live_ duffel_test_
paddle         url{30,}                   -            pdl_live_ pdl_sdbx_ pdl_ntfset_
sendgrid       padded{32,}                digit        SG.
sendgrid       url{20,24}.url{36,}        apart,digit  sg.
mailgun        lower{32}                  two          key- pubkey-
mailchimp      url{22}                    mixed        md-
resend         alnum{6,}_alnum{14,}       mixed        re_
brevo          url{60,}                   -            xkeysib- xsmtpsib-
mailersend     hex{60,}                   -            mlsn.
zoho           hex{32}.hex{32}            -            1000.
klaviyo        hex{34}                    -            pk_
smtptwogo      upper{32}                  digit        api-
woocommerce    hex{40}                    -            ck_ cs_
adafruit       alnum{28}                  -            aio_
openai         url{16,}                   digit        sk-
openai         url{16,}                   -            sk-proj- sk-svcacct- sk-admin-
anthropic      url{16,}                   -            sk-ant-
openrouter     hex{30,}                   -            sk-or-v1-
huggingface    alnum{30,}                 -            hf_ api_org_
groq           alnum{40,}                 -            gsk_
replicate      alnum{30,}                 -            r8_
perplexity     alnum{32,}                 -            pplx-
nvidia         url{32,}                   -            nvapi-
xai            url{40,}                   -            xai-
fireworks      alnum{20,}                 digit        fw_
together       url{30,}                   -            tgp_v1_
tavily         url{24,}                   -            tvly-
elevenlabs     hex{40,}                   -            sk_
cartesia       url{16,}                   -            sk_car_
runway         hex{100,}                  -            key_
luma           uuid-uuid                  -            luma-
modal          alnum{22}                  apart,mixed  as- ak-
anyscale       alnum{24,}                 -            esecret_
brave          url{24,}                   apart,digit  BSA
daytona        hex{60,}                   -            dtn_
memzero        alnum{24,}                 mixed        m0-
kaggle         hex{30,}                   -            KGAT_
voyage         url{43}                    mixed        pa-
runpod         alnum{36,}                 digit        rpa_
firecrawl      hex{32}                    -            fc-
scrapfly       hex{32}                    -            scp-live- scp-test-
etwob          hex{40}                    -            e2b_
wandb          url{40,}                   -            wandb_v1_
langsmith      url{32,}                   -            lsv2_pt_ lsv2_sk_ ls__
dify           alnum{24}                  apart,mixed  app- dataset-
langfuse       uuid                       -            sk-lf- pk-lf-
pinecone       url{30,}                   -            pcsk_
notion         alnum{32,}                 digit        secret_
notion         alnum{40,}                 -            ntn_
airtable       alnum{14}.hex{60,}         -            pat
clickup        digit{6,}_upper{30,}       -            pk_
nodemation     dotted{30,}                -            n8n_api_
linear         alnum{32,}                 -            lin_api_ lin_oauth_ lin_wh_
close          alnum{20,}.alnum{20,}      -            api_
salesforce     dotted{60,}                -            3MVG9
dub            alnum{24}                  mixed        dub_
zuplo          lower{32}_hex{8}           -            zpka_
figma          url{36,}                   -            figd_ figo_ figu_ figor_ figoh_
asana          digit{10,}:hex{30,}        apart        1/
asana          digit{10,}/digit{10,}:hex{30,} -            2/
linkedin       alnum{10,}.base64{6,}      -            WPL_AP0. WPL_AP1.
contentful     url{40,}                   -            CFPAT-
imagekit       base64{27}=                mixed        private_
bannerbear     hex{30}                    -            bb_pr_ bb_ma_
voiceflow      hex{24}.alnum{16}          -            VF.DM. VF.WS.
wix            dotted{60,}                -            IST.eyJ
intercom       base64{50,}                apart,mixed  dG9rO
hubspot        lower{2,4}-uuid            -            pat-
frameio        padded{60,}                -            fio-u-
dropbox        padded{80,}                digit        sl. sl.u.
harness        url{22}.alnum{24}.alnum{20} -            pat. sat.
settlemint     alnum{16,}                 -            sm_aat_ sm_pat_ sm_sat_
sentry         base64{20,}                -            sntryu_ sntrys_ sntrya_ sntryi_
newrelic       url{19,}                   -            NRAK- NRII- NRJS- NRAA- NRBR- NRRA- NRSP- NRIQ-
newrelic       uuid                       -            px-dep- px-api-
newrelic       hex{30,36}NRAL             -            eu01xx
grafana        base64{30,}                digit        glc_ eyJrIjoi
grafana        alnum{32}_hex{8}           -            glsa_
datadog        alnum{34}                  -            ddapp_
datadog        hex{32}                    apart,three  pub
dynatrace      alnum{8,24}.alnum{30,}     -            dt0c01. dt0s01. dt0s02. dt0s16. dt0a01.
honeycomb      lower{40,}                 -            hcaik_ hcbik_ hcamk_
healthchecks   alnum{28}                  -            hcw_ hcr_
checkly        hex{32}                    -            cu_
elastic        base64{40,}                -            essu_
logicmonitor   base64{40,}                -            lmb_
nightfall      alnum{32}                  mixed        NF-
onesignal      lower{80,}                 -            os_v2_app_ os_v2_org_
pubnub         alnum{40,}                 -            sec-c-
posthog        alnum{30,}                 -            phc_ phx_ phs_ pha_
launchdarkly   uuid                       -            sdk- api- mob-
rootly         hex{60,}                   -            rootly_
pagerduty      url{18}                    apart,mixed  u+
twilio         alnum{32}                  three        SK AC
mapbox         url{20,}.url{10,}          -            pk.eyJ sk.eyJ tk.eyJ
mapbox         lower{60}.lower{22}        -            pk.
pulumi         hex{40}                    -            pul-
postman        hex{24}-hex{34}            -            PMAK-
postman        alnum{26}                  -            PMAT-
npm            alnum{30,}                 -            npm_
pypi           url{40,}                   -            pypi-AgE tp-pyx-
rubygems       hex{40,}                   -            rubygems_
nuget          lower{43}                  -            oy2
crates         alnum{32}                  mixed        cio cio_tp_
clojars        alnum{50,}                 -            CLOJARS_
packagist      alnum{3,}_alnum{20,}       digit        packagist_
docker         url{20,}                   -            dckr_pat_ dckr_oat_
docker         lower{40,}-lower{20,}      -            SWMTKN-1-
docker         base64{40,}                -            SWMKEY-1-
artifactory    alnum{40,}                 mixed        AKC
artifactory    url{50,}                   -            cmVmd
tailscale      url{16,}                   -            tskey-
ngrok          alnum{26}_alnum{21,}       apart,mixed  2
circleci       url{30,}                   -            CCIPAT_ CCIPRJ_
buildkite      url{36,}                   digit        bkua_ bkct_ bkat_ bkar_ bkaj_
sourcegraph    alnum{16,}_hex{36,}        -            sgp_
sourcegraph    hex{36,}                   -            sgp_local_ sgp_ slk_
prefect        alnum{36}                  -            pnu_ pna_ pnb_
sonar          url{40}                    -            squ_ sqp_ sqa_
stackhawk      url{20}.url{20}            -            hawk.
snyk           hex{8}.url{30,}            -            snyk_uat. snyk_sat.
endor          url{16}                    -            endr+
socket         url{30,}                   -            sktsec_
octopus        upper{25,32}               digit        API-
infracost      alnum{32}                  -            ico-
adobe          url{32}                    -            p8e-
intra          hex{60,}                   -            s-s4t2ud- s-s4t2af-
definednet     padded{60,}                -            dnkey-
openshift      url{40,}                   -            sha256~
portainer      base64{36,}                digit        ptr_
authress       alnum{5,30}.alnum{4,6}.accurl{11,33}.base64{30,} -            sc_ ext_ scauth_ authress_
freemius       url{29}                    mixed        sk_
beamer         padded{44}                 apart,three  b_
okta           padded{40}                 apart,mixed  00
telnyx         url{44,}                   apart,digit  KEY
ionic          alnum{40,}                 digit        ion_
localstack     upper{16,}                 digit        LKIA LSIA
ethplorer      alnum{5}-alnum{7}-alnum{5} -            EK-
wallet         alnum{100,}                -            xprv yprv zprv tprv
wallet         base58{50}                 apart,mixed  5 edsk
wallet         base58{51}                 apart,mixed  K L
wallet         base58{56}                 apart,mixed  6P
wallet         upper{55}                  apart,three  S
nostr          lower{58}                  -            nsec1
alchemy        alnum{28,}                 -            alcht_
riot           url{30,}                   digit        RGAPI-
wakatime       url{36,}                   digit        waka_
persona        url{22,}                   digit        persona_production_ persona_sandbox_
devcycle       url{8,}                    digit        dvc_server_ dvc_client_ dvc_mobile_
onfido         dotted{18,}                digit        api_live. api_sandbox.
onfido         lower{2,3}.dotted{18,}     digit        api_live_ api_sandbox_
lichess        url{18,}                   digit        lip_
robinhood      uuid                       -            rh-api-
gcnotify       dotted{70,}                digit        gcntfy-
valtown        url{22,}                   digit        vtwn_
wave           url{26,}                   digit        wave_sn_prod_ wave_ci_prod_
devin          lower{50,}                 digit        cog_
devin          base64{60,}                digit        apk_
proof          url{24,}                   digit        prf_
hop            url{30,}                   digit        hop_pat_ ptk_
arcjet         lower{26}                  digit        ajkey_
axiom          uuid                       -            xaat- xapt-
composio       url{20}                    apart,mixed  ak_ ck_ oak_ uak_
ebay           hex{8}-hex{4}-hex{4}-hex{4}-hex{4,12} -            PRD- SBX-
exoscale       alnum{24,}                 mixed        EXO
iterative      uuid                       -            isat_
mappedin       alnum{24,}                 mixed        mik_
minimax        upper{8}-upper{8}-upper{8}-upper{8} -            MINIMAX-
moneywave      upper{26,36}               digit        ts_
scale          hex{30,}                   -            live_auth_ test_auth_
sqreen         hex{50,}                   -            org_
upcloud        upper{26}                  digit        ucat_
workato        lower{1,6}-eyJdotted{40,}  -            wrk
miro           url{36,}                   apart,mixed  eyJtaXJv
mercury        url{30,}                   digit        mercury_production_ mercury_sandbox_
ory            url{24,}                   digit        ory_st_ ory_at_ ory_rt_ ory_pat_ ory_apikey_ ory_ac_ ory_wak_
pinterest      dotted{24,}                digit        pina_ pinr_ pinc_
vkontakte      url{60,}                   -            vk1.a.
mintlify       alnum{22,}                 digit        mint_ mint_dsc_
coderabbit     hex{50,}                   -            cr-
configcat      url{20,}/url{20,}          -            configcat-sdk-1/
databento      alnum{29}                  apart,mixed  db-
datastax       alnum{20,}:hex{60,}        -            AstraCS:
hex            hex{60,}                   -            hxtw_ hxtp_
openvsx        uuid                       -            ovsxp_ ovsxat_
paystack       lower{1,6}_lower{30,}      digit        sk_ pk_
pushbullet     alnum{32}                  apart,mixed  o.
tinybird       url{30,}.dotted{20,}       -            p.eyJ
trendmicro     alnum{26,}:alnum{40,}      digit        tmc1
warpstream     hex{60,}                   -            aks_
wepay          hex{60,}                   -            PRODUCTION_ STAGE_
canva          url{40,}                   digit        cnvca
mergify        url{40,}                   digit        mergify_application_key_ mergify_
tigris         base64{40,}                digit        tsec_
ntlm           base64{40,}                -            TlRMTVNTUAA
nats           upper{56}                  digit        SU SA SO SN SC SX
fullstory      base64{40,}                apart,digit  na1. eu1.
jdcloud        upper{28}                  digit        JDC_
deepsource     hex{40,}                   -            dsp_ dsa_
materialize    hex{60,}                   -            mzp_
flagsmith      alnum{20,24}               apart,mixed  ser.
unleash        hex{56,64}                 -            development. production. staging. test. default.
unleash        hex{56,64}                 apart        .
klarna         base64{40,}                -            klarna_live_api_ klarna_test_api_
iexcloud       hex{32}                    -            sk_ Tsk_ Tpk_
paseto         padded{60,}                -            v1.local. v2.local. v3.local. v4.local.
paseto         padded{60,}                -            v1.public. v2.public. v3.public. v4.public.
macaroon       base64{60,}                apart,mixed  MDAx AgE
fernet         base64{60,}                apart        gAAAAA
flask          url{20,}.url{6}.url{27}    -            .eJ
rails          base64{60,}                apart,mixed  BAh7
laravel        base64{43}=                -            base64:
aspnet         url{60,}                   -            CfDJ8
dingtalk       hex{64}                    -            SEC
jetbrains      base64{6,}.base64{4,}.alnum{24,} -            perm: perm-
phabricator    lower{28}                  apart,three  api- cli-
sanity         alnum{80,}                 digit        sk
retool         lower{26}                  two          retool_
boundary       alnum{10}_s1alnum{30,}     -            at_ s_
phase          dotted{1,8}:hex{60,}       -            pss_service: pss_user:
revenuecat     alnum{27}                  mixed        appl_ goog_ amzn_ strp_
shipengine     base64{43}                 apart,mixed  TEST_
aftership      hex{32}                    -            asat_
cursor         hex{64}                    -            crsr_ key_
warp           hex{60,}                   -            wk-1.
promptlayer    hex{32}                    -            pl_
private-key    base64{40,}                -            LS0tLS1CRUdJTiBSU0EgUFJJVkFURS LS0tLS1CRUdJTiBQUklWQVRFI
private-key    base64{40,}                -            LS0tLS1CRUdJTiBFQyBQUklWQVRF LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUg
private-key    base64{40,}                -            LS0tLS1CRUdJTiBFTkNSWVBURUQg LS0tLS1CRUdJTiBEU0Eg
private-key    base64{40,}                -            LS0tLS1CRUdJTiBQR1AgUFJJVkFURSBL
"""
