# SPDX-License-Identifier: Apache-2.0
"""The words that `names.py` and `values.py` use, all in lower case.

Only words, no rules. A word belongs to a set when names in real configurations use it that way.
"""

from __future__ import annotations

from typing import Final


def _split(words: str) -> frozenset[str]:
    return frozenset(words.split())


PASSWORDS: Final = _split(
    "password passwords passwd pwd passphrase passphrases passcode passwort kennwort passe motdepasse requirepass contrasena senha"
    " dbpass dbpw userpass rootpass adminpass smtppass mypass sshpass passwordhash pgpass rootpw adminpw bindpw imappass keypass"
    " storepass passwrd psw pswd masterauth wachtwoord haslo losenord salasana adgangskode passord jelszo heslo sifre parola"
    " lozinka geslo slaptazodis"
)
# Other scripts have no case and no words within names; a phrase is searched as a whole, and its last word decides.
FOREIGN_PASSWORDS: Final = _split(
    "пароль пароля 密码 密碼 口令 パスワード 暗証番号 비밀번호 암호 κωδικός סיסמה รหัสผ่าน"
    " lösenord hasło jelszó parolă şifre slaptažodis"
) | {"كلمة المرور", "كلمة السر", "mật khẩu"}
FOREIGN_SECRETS: Final = frozenset({"密钥", "密鑰", "令牌", "トークン", "토큰", "токен", "секрет"})
PARTICLES: Final = "은는이가을를はがを是为為"
PASSWORD_ENDINGS: Final = ("password", "passwd", "pwd", "passphrase")
HARMLESS_PASSES: Final = _split(
    "first second third single multi one two by render next last boarding test low high band dry full"
)
HASH_WORDS: Final = _split(
    "md5 sha1 sha256 sha512 base64 argon2 argon2i argon2id pbkdf2 oauth2 utf-8 utf ed25519 bcrypt2 aes256 2fa"
)
COOKIES: Final = _split(
    "cookie cookies setcookie sessionid sessid phpsessid jsessionid asp aspxauth sid csrftoken"
)
SECRETS: Final = _split(
    "secrets apikeys credential cred creds jwt otp totp cvv cvc csc dsn mnemonic"
    " connectionstring connstr bearer dockerconfigjson dockercfg sharedaccesssignature ssws privkey psk"
)
SECRET_ENDINGS: Final = ("token", "secret", "apikey", "accesskey", "secretkey", "privatekey", "credentials")
UNCERTAIN: Final = _split(
    "tokens auth signature sig salt nonce session hmac oauth clave passkey apisecretkey authn xauth crumb macaroon license pepper"
)
# Uncertain only as the last word: `partnerApi`, `sonar.login`.
UNCERTAIN_LAST: Final = _split("access api login keystring pat")
KEY_QUALIFIERS: Final = _split(
    "api access secret private account auth encryption decryption signing signature master shared ssh deploy webhook license"
    " product activation app application subscription function functions admin jwt hmac crypto cipher aes rsa root integration"
    " ingest ingestion stripe openai anthropic azure aws gcp gemini mistral cohere groq together deepseek datadog dd sendgrid"
    " mailgun mailchimp twilio algolia pinecone notion airtable sentry newrelic plaid braintree square adyen cloudflare linode"
    " heroku okta supabase anon vault unseal recovery seed wallet ed ecdsa tls cosmos cognitive consumer oauth sas maps session"
    " cookie csrf postmark resend brevo flask django rails fernet kms personal pagerduty opsgenie honeycomb segment amplitude"
    " mixpanel firebase fcm push vapid sparkpost mandrill perplexity fireworks replicate huggingface voyage tavily serper"
    " preshared genie credential credentials pgp gpg ssl install snyk codecov coveralls launchdarkly intercom zendesk hubspot"
)
HARMLESS_KEYS: Final = _split(
    "primary sort partition foreign idempotency cache object s row hash range dedupe dedup deduplication routing group"
    " natural surrogate composite candidate unique public lookup index map dict json config translation message order"
    " bucket blob event shard arrow enter registry lock queue job record entity column metric setting feature field missing"
    " invalid unknown duplicate ordering grouping sorting binding hot answer data pub path state context correlation"
    " cluster clustering distribution join merge filter search property attribute header label tag option component react"
    " tenant document item node yaml toml env environment variable dictionary mapping required extra first last next"
)
SECRET_PAIRS: Final = frozenset(
    f"{before} {last}"
    for lasts, befores in (
        (
            "code codes",
            "auth authorization verification security otp mfa totp recovery backup pass login pairing device pin sms fa access",
        ),
        ("code", "unlock confirmation"),
        ("phrase", "seed recovery pass"),
        ("string", "connection"),
        ("answer", "security secret"),
        ("auth", "rediscli redis"),
        ("session", "metabase"),
        ("certificate", "app"),
        ("pat", "github gitlab gh gl git azure devops ext azdo ghcr bitbucket"),
    )
    for last in lasts.split()
    for before in befores.split()
)
# `existingSecret: release-db` and `imagePullSecrets` name an object that contains the secret.
HOLDING_SECRETS: Final = _split("existing pull")
NEUTRAL_TAILS: Final = _split(
    "value hash hashed plain plaintext text raw old new confirm confirmation encoded encrypted prod production dev development"
    " live test staging stage current previous primary secondary default b base header env bytes hex str again repeat override"
    " val literal pem ro rw main backup v used rotated"
)
HARMLESS_TAILS: Final = _split(
    "count counts policy policies type types name names id ids length len size sizes limit limits ttl expiry expires"
    " expiration expired age url uri urls endpoint endpoints path paths file files filename field fields format version"
    " versions index error errors status state enabled disabled required optional min max minimum maximum strength rule rules"
    " hint prompt label attempts attempt changed at on template regex pattern validator validators usage budget rate price"
    " cost provider arn location kind class method methods mode algorithm alg scheme schemes strategy backend backends store"
    " cache space prefix suffix parser factory service services callback domain samesite secure httponly interval timeout"
    " duration issuer audience scope scopes source number num total window bucket quota lifetime seconds minutes hours days"
    " date time created updated valid verified present exists missing set is has manager pool jar"
    " middleware rotation iterations rounds encoder decoder generator checker reset settings options config"
    " description message title help visible placeholder autocomplete input widget form page view user username owner"
    " stream buffer limiter counter estimate tokenizer ref reference refs namespace region bits curve usages ops"
    " oldpwd reason category group groups level host port server servers agent plugin module handler handlers fingerprint"
)
# Names of ordinary facts in a block of secrets.
BLOCK_FACTS: Final = _split(
    "account bucket zone project email profile external environment driver login target uid gid created from tenant cluster"
    " organization org team app application role key commit sha checksum digest revision"
)
# Their keys are often hashes.
HASHED: Final = _split("cache hash etag dedup dedupe deduplication idempotency")
HARMLESS_WORDS: Final = _split(
    "count policy max min total num number of per no without missing invalid bad public"
)

TYPE_WORDS: Final = _split(
    "str string bytes bytearray int integer bool boolean float number any object optional secretstr secret_str char varchar"
    " text list dict set tuple array map union json date datetime uuid optional[str] type callable iterable sequence"
)
INERT_WORDS: Final = (
    _split(
        "none null nil undefined true false yes no on off empty blank unset missing required invalid expired redacted hidden"
        " masked filtered removed sanitized omitted unknown default n/a na tbd todo incorrect wrong mismatch rejected denied"
        " disabled enabled absent present ok failed ignored unavailable forbidden unauthorized revoked not must should cannot"
        " can the a an is was has for and or to of in with from this that field fields value values header error malformed"
        " unexpected expected include same-origin omit bearer basic digest self cls void nan deprecated generated private"
        " public protected static final const let var def class function return await async new if else authentication"
        " authorization verification validation too at least be only used using unchanged same confidential hs256 hs384 hs512"
        " rs256 rs384 rs512 es256 es384 es512 ps256 ps384 ps512 eddsa sensitive secured inherit see ask check contact refer"
        " stored kept identifier ident eof semicolon newline unsupported supported available provided specified given found it"
        " your my our"
    )
    | _split(
        "requis requise obligatoire incorrecte invalide manquant falsch fehlt erforderlich vergessen requerida requerido"
        " obligatoria obligatorio incorrecta inválida obrigatória incorreta verplicht onjuist ongeldig vereist errata obbligatoria"
        " wymagane saknas ungültig oublié"
    )
    | TYPE_WORDS
    | HASH_WORDS
)
PROSE_WORDS: Final = _split(
    "is was are be been must should may can cannot could not no the a an this that for and or of to from with without field"
    " required invalid missing expected unexpected expired too short long least characters character contain contains"
    " match matches does did do has have at in on by when while because only used using value failed error your"
    " authentication please enter wrong incorrect needs need never will would see ask check contact refer stored kept muss"
    " darf doit debe deve moet updated successfully"
)
VALIDATION_WORDS: Final = _split(
    "required must should invalid field fields characters character least missing expired incorrect short long empty valid"
    " match matches blank wrong failed cannot contain contains too not expected unexpected mismatch denied rejected provided"
)
CODE_ROOTS: Final = _split(
    "self cls settings config cfg conf os env environ app application request req response resp ctx context args kwargs opts"
    " options params data user client conn connection session account creds credentials secrets vault auth this props state"
    " process module base super form serializer obj instance model var local each payload body event message job task store"
)
# The pairs of letters that are three quarters of those in words, and one in five of those in random text.
COMMON_PAIRS: Final = _split(
    "ab ac ad ag ai al am an ap ar as at au ba be bl ca ce ch ck cl co cr ct da de di ds ea ec ed ee ef el em en ep er es et ev ex"
    " fi fo ge gr ha he ho ia ic id ie ig il im in io is it ke la le li ll lo ls lt lu ma me mi mo mp na nc nd ne nf ng ni no ns nt"
    " oc od ol om on oo op or os ot ou ow pa pe pl po pr pt pu qu ra rc rd re ri rm ro rr rs rt ry sa sc se sh si so sp ss st su"
    " ta tc te th ti to tp tr ts tt tu ty ue ul um un up ur us ut va ve vi xt yp"
)
