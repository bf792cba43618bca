# SPDX-License-Identifier: Apache-2.0
"""Secrets as a stranger would write them down: every format, drawn from a seed, in everyday carriers.

Written without a look at the other corpora, so that it measures them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import cycle
from string import ascii_lowercase, digits

from tests.unit.redaction.stranger_tokens import (
    ALNUM,
    HEX,
    HOOKS,
    LOWER,
    TOKENS,
    UPPER,
    URL_SAFE,
    draw,
    sample,
)

Case = tuple[str, str, str]
"""The kind, the text and the secret in it."""

_BARE: tuple[str, ...] = (
    "we rotated {} yesterday.",
    "2024-06-11T09:14:55.120Z ERROR [worker-3] upstream said 401 for {}, giving up",
    '{{"request": {{"id": 17, "value": "{}"}}}}',
    "{{'a': 1, 'b': '{}'}}",
    "deploy:\n  value: {}\n  replicas: 2",
    "export CI_THING={}",
    "$ tool push --with {} --verbose",
    "X-Custom: {}\nHost: example.org",
    "GET /v1/items?t={}&page=2 HTTP/1.1",
    "ValueError: cannot use {}.",
    "(got {})",
    "[{}]",
    "see {}, then retry",
    'raise RuntimeError(f"rejected {}")',
)


def tokens() -> Iterator[Case]:
    carriers = cycle(_BARE)
    for kind, make in TOKENS.items():
        for _ in range(3):
            secret = make()
            yield kind, next(carriers).format(secret), secret
    for address, make in HOOKS.items():
        secret = make()
        yield "webhook", next(carriers).format(address + secret), secret


def _password() -> str:
    return draw(ascii_lowercase, 5) + draw("!#%*+-_", 1) + draw(UPPER, 5) + draw(digits, 2)


_ASSIGNED: tuple[str, ...] = (
    '{{"username": "ada", "password": "{}"}}',
    "{{'user': 'ada', 'passwd': '{}', 'port': 5432}}",
    "database:\n  host: db\n  password: {}\n  port: 5432",
    "database:\n  password: '{}'\n",
    "DB_PASSWORD={}\nDB_HOST=localhost",
    'export MYSQL_ROOT_PASSWORD="{}"',
    "$env:SMTP_PASSWORD = '{}'",
    "POST /login?user=ada&password={}&next=%2F",
    "user=ada&pwd={}",
    "psycopg.connect(host='db', user='ada', password='{}')",
    "Settings(debug=True, db_password='{}', workers=3)",
    "Login failed (password={})",
    "spring.datasource.password={}",
    "pg_restore --username ada --password {} dump.sql",
    "tool --password={} --dry-run",
    "<password>{}</password>",
    '<add key="Password" value="{}"/>',
    "Server=db;Database=x;User Id=sa;Password={};Encrypt=true",
    "host=db user=ada password={} dbname=app",
    "ALTER USER ada WITH PASSWORD '{}';",
    "CREATE USER 'ada'@'%' IDENTIFIED BY '{}';",
    'password := "{}"',
    'const password = "{}";',
    '"userPassword": "{}",',
    "[client]\nuser = ada\npassword = {}\n",
    "the password is {}.",
    "ENV ADMIN_PASSWORD {}",
    "docker run -e POSTGRES_PASSWORD={} postgres:16",
    "redis-cli -h cache -a {} ping",
    "sshpass -p '{}' ssh ada@host",
    "mysql -uroot -p{} app",
    "curl -u ada:{} https://api.example.org/v1",
    '{{\\"login\\": \\"ada\\", \\"password\\": \\"{}\\"}}',
    "passphrase: {}",
    "login(user='ada', pw='{}')",
    "Kennwort: {}",
    "Passwort: {}",
    "password={},retries=3",
    "('password', '{}')",
    "password=b'{}'",
    "name: password\nvalue: {}",
    "machine api.example.org login ada password {}",
    "User(name='ada', password=SecretValue('{}'))",
    "user%3Dada%26password%3D{}%26x%3D1",
    'old_password: "{}", attempts: 2',
    "PGPASSWORD={} psql -h db",
    "| password | {} |",
    'form-data; name="password"\r\n\r\n{}\r\n--bound',
    "password\t{}",
    "password => '{}',",
    ':password => "{}"',
)

_NAMED: tuple[str, ...] = (
    "AWS_SECRET_ACCESS_KEY={}",
    "aws_secret_access_key = {}",
    '"SecretAccessKey": "{}",',
    'client_secret: "{}"',
    "clientSecret='{}'",
    "x-api-key: {}",
    "X-Auth-Token: {}",
    "?api_key={}&x=1",
    "&access_token={}",
    '"refresh_token":"{}"',
    "SECRET_KEY = '{}'",
    "signing_key: {}",
    "encryption-key={}",
    "DATADOG_API_KEY: {}",
    "AccountKey={};EndpointSuffix=core.windows.net",
    "SharedAccessKey={}",
    "webhookSecret = {}",
    "Api-Key: {}",
    "--token {}",
    "--api-key={}",
    "_authToken={}",
    "//registry.npmjs.org/:_authToken={}",
    "sessionid={}; path=/",
    "PHPSESSID={}",
    "'csrftoken': '{}'",
    "private_key: {}",
    "my api key: {}",
    "API token: {}",
    "the token {} was rejected",
    "invalid api key {} supplied",
    "SLACK_SIGNING_SECRET={}",
    "STRIPE_KEY={}",
    "TWILIO_AUTH_TOKEN={}",
    "CLOUDFLARE_API_TOKEN={}",
    "jwt_secret={}",
    "consumer_secret: {}",
    'oauth_token_secret="{}"',
    'bot_token = "{}"',
    "X-Amz-Signature={}&X-Amz-Date=1",
    "X-Amz-Security-Token={}",
    "sig={}",
    "token={}",
    '[["x-api-key", "{}"]]',
    "(b'x-api-key', b'{}')",
    "credential: {}",
    "apiKey: '{}',",
    "Token('{}')",
)


def assigned() -> Iterator[Case]:
    for carrier in _ASSIGNED:
        if "{}" in carrier:
            secret = _password()
            yield "password", carrier.format(secret), secret
    drawn: Iterator[Callable[[], str]] = cycle(
        (lambda: draw(ALNUM, 40), lambda: draw(HEX, 32), lambda: draw(URL_SAFE, 32))
    )
    for carrier, make in zip(_NAMED, drawn, strict=False):
        secret = make()
        yield "named", carrier.format(secret), secret


def headers() -> Iterator[Case]:
    for carrier in (
        "GET / HTTP/1.1\r\nHost: example.org\r\nAuthorization: {}\r\nAccept: */*\r\n",
        "curl -H 'Authorization: {}' https://api.example.org",
        'curl -H "authorization: {}" https://api.example.org',
        "{{'Authorization': '{}', 'Accept': '*/*'}}",
        '{{"headers": {{"authorization": "{}"}}}}',
        "Proxy-Authorization: {}",
        "('authorization', '{}')",
        "> Authorization: {}",
        'headers["Authorization"] = "{}"',
        "authorization={}",
    ):
        bearer, basic = draw(URL_SAFE, 36), b64encode(f"ada:{draw(ALNUM, 12)}".encode()).decode()
        yield "authorization", carrier.format("Bearer " + bearer), bearer
        yield "authorization", carrier.format("Basic " + basic), basic
        yield "authorization", carrier.format("Token " + bearer[::-1]), bearer[::-1]
    for carrier in (
        "Cookie: theme=dark; session={}",
        "Cookie: {}=1",
        "Set-Cookie: sid={}; Path=/; HttpOnly",
        "{{'Cookie': 'a={}; b=2'}}",
        "curl -b 'session={}' https://example.org",
        "curl -H 'Cookie: x={}' https://example.org",
        "< set-cookie: auth={}; Secure",
        '["cookie", "id={}"]',
    ):
        secret = draw(ALNUM, 26)
        yield "cookie", carrier.format(secret), secret
    digest = draw(HEX, 32)
    yield "authorization", f'Authorization: Digest username="ada", response="{digest}"', digest
    signature = draw(HEX, 64)
    yield (
        "authorization",
        f"Authorization: AWS4-HMAC-SHA256 Credential=x/20240611/eu, SignedHeaders=host, Signature={signature}",
        signature,
    )
    bare = draw(URL_SAFE, 40)
    yield "authorization", f"sent Bearer {bare} to the gateway", bare
    yield "authorization", f"401: bearer {bare[::-1]}.", bare[::-1]


def urls() -> Iterator[Case]:
    for carrier in (
        "postgresql://app:{}@db.internal:5432/app",
        "could not connect to 'postgres://app:{}@db/app?sslmode=require'",
        "DATABASE_URL=mysql+pymysql://root:{}@127.0.0.1/shop",
        '{{"broker": "amqp://guest:{}@rabbit:5672//"}}',
        "redis://:{}@cache:6379/0",
        "rediss://default:{}@cache:6380",
        "mongodb+srv://ada:{}@cluster0.abcde.mongodb.net/?retryWrites=true",
        "git clone https://ada:{}@git.example.org/team/repo.git",
        "https://x-access-token:{}@github.com/o/r",
        "pip install -i https://bot:{}@packages.example.org/simple pkg",
        "http_proxy=http://user:{}@proxy:3128",
        "ftp://ada:{}@files.example.org/x",
        "smtp://mailer:{}@smtp.example.org:587",
        "ldap://cn=admin:{}@ldap.example.org",
        "(see https://ada:{}@example.org/a).",
        "mssql+pyodbc://sa:{}@sql/db?driver=ODBC",
        "jdbc:postgresql://db/app?user=ada&password={}",
        "jdbc:mysql://root:{}@db/app",
        "nats://user:{}@nats:4222, nats://b",
        "clickhouse://default:{}@ch:9000/logs",
        "snowflake://ada:{}@acct/db",
        "sftp://ada:{}@host/path.",
        "dsn is root:{}@tcp(db:3306)/app?parseTime=true",
    ):
        secret = draw(ALNUM, 8) + draw("!*+._-", 1) + draw(ALNUM, 3)
        yield "url", carrier.format(secret), secret
    public = draw(HEX, 32)
    yield "url", f"SENTRY_DSN=https://{public}@o1.ingest.sentry.io/42", public
    signed = draw(ALNUM + "%", 44)
    yield (
        "url",
        f"https://acct.blob.core.windows.net/c/b?sv=2022-11-02&se=2024&sr=b&sp=r&sig={signed}",
        signed,
    )
    amz = draw(HEX, 64)
    yield "url", f"https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature={amz}", amz


def pems() -> Iterator[Case]:
    for label in (
        "RSA PRIVATE KEY",
        "PRIVATE KEY",
        "EC PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
    ):
        body = [draw(ALNUM + "+/", 64) for _ in range(6)]
        head, foot = f"-----BEGIN {label}-----", f"-----END {label}-----"
        for text in (
            "\n".join((head, *body, foot)),
            "tls:\n  key: |\n    " + "\n    ".join((head, *body, foot)) + "\n  port: 1",
            '{"private_key": "' + "\\n".join((head, *body, foot)) + '\\n", "type": "x"}',
            "\r\n".join((head, *body)),
            "log | " + "\nlog | ".join((head, *body, foot)),
        ):
            for line in (body[0], body[-1]):
                yield "pem", text, line


def _luhn(prefix: str, length: int) -> str:
    number = prefix + draw(digits, length - 1 - len(prefix))
    total = 0
    for index, character in enumerate(reversed(number)):
        value = int(character) * (2 if index % 2 == 0 else 1)
        total += value - 9 if value > 9 else value
    return number + str(-total % 10)


def _spaced(number: str, sign: str, *sizes: int) -> str:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(number[at : at + size])
        at += size
    return sign.join(piece for piece in pieces if piece)


def _iban(country: str, bban: str) -> str:
    value = "".join(str(int(character, 36)) for character in bban + country + "00")
    return f"{country}{98 - int(value) % 97:02d}{bban}"


def _rrn() -> str:
    body = (
        draw("6789", 2) + "0" + draw("123456789", 1) + "1" + draw(digits, 1) + draw("12", 1) + draw(digits, 5)
    )
    total = sum(
        int(digit) * weight for digit, weight in zip(body, (*range(2, 10), *range(2, 6)), strict=True)
    )
    return f"{body[:6]}-{body[6:]}{(11 - total % 11) % 10}"


def _german_tax_id() -> str:
    # One digit twice, the others at most once, then the check digit of ISO 7064 MOD 11,10.
    chosen = sample(digits[1:], 9)
    chosen.append(chosen[0])
    product = 10
    for character in chosen:
        total = (int(character) + product) % 10 or 10
        product = total * 2 % 11
    return "".join(chosen) + str((11 - product) % 10)


def _nir() -> str:
    body = draw("12", 1) + draw("6789", 2) + "0" + draw("123456789", 1) + "75" + draw("123456789", 6)
    return body + f"{97 - int(body) % 97:02d}"


PEOPLE: dict[str, Callable[[], str]] = {
    "email": lambda: f"{draw(ascii_lowercase, 6)}.{draw(ascii_lowercase, 5)}@{draw(ascii_lowercase, 7)}.com",
    "email tag": lambda: f"{draw(ascii_lowercase, 6)}+{draw(LOWER, 4)}@mail.{draw(ascii_lowercase, 5)}.co.uk",
    "visa": lambda: _luhn("4", 16),
    "visa spaced": lambda: _spaced(_luhn("4", 16), " ", 4, 4, 4, 4),
    "mastercard dashed": lambda: _spaced(_luhn("53", 16), "-", 4, 4, 4, 4),
    "amex": lambda: _luhn("37", 15),
    "amex spaced": lambda: _spaced(_luhn("34", 15), " ", 4, 6, 5),
    "discover": lambda: _luhn("6011", 16),
    "iban de": lambda: _iban("DE", draw(digits, 18)),
    "iban gb spaced": lambda: _spaced(_iban("GB", "NWBK" + draw(digits, 14)), " ", 4, 4, 4, 4, 4, 2),
    "iban fr": lambda: _iban("FR", draw(digits, 23)),
    "iban nl": lambda: _iban("NL", "ABNA" + draw(digits, 10)),
    "ssn": lambda: f"{draw('12345', 3)}-{draw('123456789', 2)}-{draw('123456789', 4)}",
    "rrn": _rrn,
    "nino": lambda: f"A{draw('BCEHJ', 1)}{draw(digits, 6)}{draw('ABCD', 1)}",
    "nino spaced": lambda: f"J{draw('BCEHJ', 1)} " + _spaced(draw(digits, 6), " ", 2, 2, 2) + " C",
    "phone e164": lambda: "+1" + draw("23456789", 3) + draw("23456789", 3) + draw(digits, 4),
    "phone us": lambda: f"({draw('2345678', 3)}) {draw('2345678', 3)}-{draw(digits, 4)}",
    "phone us dashed": lambda: f"{draw('2345678', 3)}-{draw('2345678', 3)}-{draw(digits, 4)}",
    "phone uk": lambda: f"+44 7{draw(digits, 3)} {draw(digits, 6)}",
    "phone de": lambda: f"+49 30 {draw('123456789', 8)}",
    "phone kr": lambda: f"010-{draw('23456789', 4)}-{draw(digits, 4)}",
    "phone fr": lambda: "+33 6 " + _spaced(draw(digits, 8), " ", 2, 2, 2, 2),
    "tax id": _german_tax_id,
    "nir": lambda: _spaced(_nir(), " ", 1, 2, 2, 2, 3, 3, 2),
    "nir plain": _nir,
}

_NUMBERED = {"tax id": ("Steuer-ID {}", "IdNr.: {}, ledig", '{{"steuer_id": "{}"}}')}
_FACTS: tuple[str, ...] = (
    "please call or write: {}.",
    '{{"contact": "{}", "n": 3}}',
    "customer={} status=active",
    "INFO 12:00:01 lookup of {}, 0 rows",
    "('{}', 42)",
    "contact: {}\n",
    "Key (value)=({}) already exists.",
    "<b>{}</b>",
)


def people() -> Iterator[Case]:
    carriers = cycle(_FACTS)
    for kind, make in PEOPLE.items():
        own = _NUMBERED.get(kind)
        for index in range(3):
            secret = make()
            carrier = own[index] if own else next(carriers)
            yield kind, carrier.format(secret), secret


def cases() -> list[Case]:
    """Return every case, in a fixed order."""
    return [*tokens(), *assigned(), *headers(), *urls(), *pems(), *people()]
