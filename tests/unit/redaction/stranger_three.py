# SPDX-License-Identifier: Apache-2.0
"""What a third stranger wrote down: command lines, names in other languages, odd assignments, odd numbers.

Passwords and numbers are drawn from a seed; a `{}` in a text is where one goes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from string import ascii_letters, ascii_lowercase, digits

_RANDOM = random.Random(33)
_WORDS = tuple("Falcon Pepper Ocean Tiger Maple cedar lantern quartz nectar bishop".split())


def _draw(signs: str, length: int) -> str:
    return "".join(_RANDOM.choices(signs, k=length))


def password() -> str:
    """Return a password as people make them: words, digits, a sign."""
    word, other = _RANDOM.sample(_WORDS, 2)
    return _RANDOM.choice(
        (
            f"{word}{_draw(digits, 2)}{other}{_draw(ascii_letters, 4)}",
            f"{word}{_draw(ascii_letters, 6)}_{_draw(digits, 3)}",
            f"{word}{_draw('!#%^', 1)}{_draw(ascii_letters, 4)}{_draw(digits, 2)}",
            f"{word}-{_draw(digits, 4)}{_draw(ascii_letters, 2)}",
        )
    )


COMMANDS = (
    *("mysql -u root -p{} shop", "mysqldump --user=root -p'{}' shop > x.sql", "mariadb-dump -uroot -p{} shop", "7z x -p{} a.7z", "rar a -hp{} a.rar f"),
    *("curl -u ada:{} https://x.example", "curl --user='ada:{}' x", "curl -sSL --proxy-user ada:{} x", "curl -E c.pem:{} https://x", "wget --user=a --password={} x"),
    *("redis-cli -h r -a {} ping", "redis-cli --pass {} ping", "redis-server --requirepass {}", "masterauth {}", "sshpass -p {} ssh h", "sshpass -p'{}' ssh h"),
    *("docker login -u a -p {} r.example", "podman login -u a -p {} r", "buildah login -u a -p {} r", "cf login -u a -p {} -o o", "oc login -u a -p {}", "az login -u a -p {}"),
    *("echo '{}' | docker login -u a --password-stdin r", "printf '%s' {} | helm registry login r --password-stdin", "docker login --password-stdin <<< '{}'"),
    *("echo {} | gh auth login --with-token", "gh auth login --with-token <<< {}", "echo {} | sudo -S ls", "echo '{}' | passwd --stdin ada", "echo {} | kinit ada", "kinit a <<< {}"),
    *('echo "ada:{}" | chpasswd', "printf 'root:{}' | sudo chpasswd", "chpasswd <<< 'ada:{}'", "smbpasswd -a ada <<< {}", "useradd -m -p {} ada"),
    *("mongosh -u ada -p '{}' x", "mongoexport -u=a -p={} x", "ldapsearch -x -D cn=a -w {} -b x", "ldappasswd -s {} uid=a", "vsql -U a -w {}", "cqlsh -u a -p {} h"),
    *("openssl rsa -in k.pem -passin pass:{}", "openssl enc -aes-256-cbc -k {} -in x", "ssh-keygen -t rsa -N {} -f k", "zip -P {} a.zip f", "ipmitool -U A -P {} power"),
    *("htpasswd -b .htpasswd ada {}", "htpasswd -nbB ada {}", "mosquitto_passwd -b f ada {}", "mosquitto_pub -u a -P {} -t x", "keytool -importkeystore -srcstorepass {} -x y"),
    *("smbclient //s/x -U 'ada%{}'", "rpcclient -U ada%{} h", "net use Z: \\\\s\\x /user:ada {}", "net use \\\\s\\x {} /user:ada", "net user ada {} /add", "xfreerdp /u:a /p:{} /v:h"),
    *("twine upload -u robot -p {} dist/*", "rabbitmqctl change_password bus '{}'", "rabbitmqctl add_user bus {}", "lftp -u ada,{} sftp://h", "snmpwalk -v2c -c {} h"),
    *("sqlcmd -S s -U sa -P {} -Q x", "sqlplus scott/{}@orcl", "expdp system/{} full=y", "create user ada identified by '{}';", "SET PASSWORD FOR 'rw'@'10.%' = PASSWORD('{}');"),
    *("poetry config http-basic.x ada {}", "poetry config pypi-token.pypi {}", "cargo login {}", "vault login {}", "cf auth ada {}", "mc alias set m http://h KEY {}", "gem push -k {}"),
    *("kubectl create secret generic x --from-literal=db={}", "snmp-server community {} RO", "tacacs-server key 7 {}", "etcdctl --user root:{} get x", "ab -A ada:{} http://x/"),
    *("['mysql', '-u', 'root', '-p{}']", "['docker', 'login', '-p', '{}']", '["ldapsearch", "-w", "{}", "-x"]', "Command '['redis-cli', '-a', '{}']' returned non-zero"),
)  # fmt: skip

NAMES = tuple(
    "Passwort Kennwort motdepasse contraseña senha wachtwoord hasło haslo lösenord salasana adgangskode passord jelszó heslo parola şifre"
    " пароль Пароль пароль_бд 密码 密碼 口令 パスワード 暗証番号 비밀번호 암호 κωδικός סיסמה รหัสผ่าน 密钥 令牌 トークン 토큰 токен секрет".split()
)
NAMED = ("{n}={v}", "{n}: {v}", '{{"{n}": "{v}"}}', "{n} = '{v}'", "{n}={v}&x=1", "<{n}>{v}</{n}>")

ASSIGNED = (
    *("password|{}", "|password|{}|", "| Password   | {}    |", "user_pwd\t{}\nport\t5432", "newPassword\t{}\nport", "keyPassword {}", "bindpw {}", "enable password 7 {}"),
    *("Password for ada: {}", "password for user ada is {}", "Password for 'ada': '{}'", "Password (ada): {}", "Password [ada]: {}", "Password.....: {}", "Password . . : {}"),
    *("password: “{}”", "password: \u2018{}\u2019", "password = «{}»", "**Password:** {}", "**Password**: {}", "the new password: {}", "PGPASSWORD={}", "密码\uff1a{}", "пароль — {}"),
    *("user%5Bname%5D=a&user%5Bpassword%5D={}&commit=Save", "user[password]={}&x=1", "password&#61;{}", "password\\x3d{}", 'password <- "{}"', 'var password = @"{}";'),
    *('variable "db_password" {\n  default = "{}"\n}', 'variable "db_password" {\n  type = string\n  default = "{}"\n}', "ALTER LOGIN sa WITH PASSWORD=N'{}'"),
    *("<password><![CDATA[{}]]></password>", "<key>password</key>\n<string>{}</string>", '<setting name="Password"><value>{}</value></setting>', "Key (api_token)=({}) exists"),
    *("secrets:\n  db: {}\n  host: db1\n", "app:\n  credentials:\n    postgres: '{}'\n", '{"secrets": {"db": "{}", "name": "x"}}', '"password","{}"', "connect.sid={}; Path=/"),
    *("Ihr Passwort lautet {}", "votre mot de passe est {}", "tu contraseña es {}", "您的密码是 {}", "비밀번호는 {} 입니다", "パスワードは {} です", "mật khẩu: {}", "كلمة المرور: {}"),
    *("db1.example.net:5432:ledger:rw:{}\n", "*:*:*:ada:{}", "# ~/.pgpass\nh:6432:app:ada:{}\n", "echo 'db:5432:app:ada:{}' >> ~/.pgpass", "ada:{}@db1:5432/app"),
    *("the passcode is {}", '- name: DB_PASSWORD\\n  value: "{}"\\n', "new Password('{}')"),
)  # fmt: skip

PINS = ("pin={}", "PIN: {}", "'pin': '{}'", "card_pin={}", "pin code: {}", "SMS code: {}", "the otp is {}", "Your verification code is {}")  # fmt: skip
CARDS = ("authorize({}) -> DECLINED", "charge({}, 100)", "card#{}", "card {} declined", '"pan": "{}"')
GROUPS = (
    "4-4-4-4",
    "4.4.4.4",
    "4/4/4/4",
    "4  4  4  4",
    "8 8",
    "4 4 8",
    "4\u00a04\u00a04\u00a04",
    "4\u20114\u20114\u20114",
    "16",
)
BOTS = (
    "https://api.telegram.org/bot{}/getMe",
    "POST /bot{}/send",
    "telegram: {}",
    "TeleBot('{}')",
    "api%2Fbot{}%2FgetMe",
)
PERSONAL = (
    *(("iban de89370400440532013000 ok", "370400440532"), ("iban: gb82 west 1234 5698 7654 32", "1234 5698"), ("account_NL91ABNA0417164300", "0417164300")),
    *(("IBANDE89370400440532013000", "370400440532"), ("DE89.3704.0044.0532.0130.00", "3704.0044"), ("DE89\u00a03704\u00a00044\u00a00532\u00a00130\u00a000", "0044")),
    *(("nino ab123456c", "123456"), ("NI number: ab 12 34 56 c.", "12 34 56"), ("AB-12-34-56-C", "12-34-56"), ("id 9001011234568", "9001011234568"), ("900101 1234568", "1234568")),
    *(("SSN#123-45-6789", "45-6789"), ("ssn(123-45-6789)", "45-6789"), ("123\u201345\u20136789", "6789"), ("Social: 123.45.6789", "45.6789"), ("86/095/742/719", "742")),
    *(("nir: 2-55-08-14-168-025-38", "168-025"), ("ada\\u0040example.com", "ada"), ("ada&#64;example.com", "ada"), ("138 1234 5678", "1234 5678"), ("wa.me/14155550123", "4155550123")),
)  # fmt: skip


def _card(length: int = 16) -> str:
    body = "4" + _draw(digits, length - 2)
    doubled = sum(int(digit) * 2 - 9 * (int(digit) > 4) for digit in body[::-2])
    return body + str(-(doubled + sum(map(int, body[-2::-2]))) % 10)


def _grouped(card: str, groups: str) -> str:
    shown, rest, size = "", card, ""
    for sign in [*groups, ""]:
        if sign.isdigit():
            size += sign
            continue
        if size:
            shown, rest, size = shown + rest[: int(size)], rest[int(size) :], ""
        shown += sign
    return shown


def cases() -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the text and the secret in it."""
    for kind, texts in (("command", COMMANDS), ("assignment", ASSIGNED)):
        for text in texts * 4:
            secret = password()
            yield kind, text.replace("{}", secret), secret
    for name in NAMES:
        for form in NAMED:
            secret = password()
            yield "foreign name", form.format(n=name, v=secret), secret
    for text in PINS:
        secret = _draw("123456789", 6)
        yield "pin", text.format(secret), secret
    for text in CARDS:
        for groups in GROUPS:
            secret = _grouped(_card(), groups)
            yield "card", text.format(secret), secret
    for text in BOTS:
        secret = _draw(ascii_letters + digits, 34) + "x"
        yield "bot", text.format(f"{_draw('123456789', 10)}:{secret}"), secret
    for form in ('"azureDevopsPat": "{}",', "azure-devops-pat: {}", "PAT={}"):
        secret = "a2b" + _draw(ascii_lowercase + "234567", 48) + "7"
        yield "devops", form.format(secret), secret
    for text, secret in PERSONAL:
        yield "personal", text, secret


KEEP = (
    *("Password: see 1Password", "password: see vault", "Password: ask Bob", "Passwort: vergessen", "Passwort: muss angegeben werden", "Mot de passe : requis", "hasło: wymagane"),
    *("пароль: обязательно", "Пароль: не указан", "密码\uff1a必填", "비밀번호: 필수", "mật khẩu: bắt buộc", "암호화 방식: aes256-gcm", "密码策略: strong", "токенов: 1024", "парольная политика: строгая"),
    *("error: unexpected token: identifier", "got token: EOF", "near unexpected token: done", "PASSWORD=${PASSWORD:?must be set}", "if password == confirm:", "password == expected1"),
    *('"PUT /users/41/password HTTP/2.0" 429 32066', "GET /password HTTP/1.1", "DELETE /users/41/password HTTP/2.0", "pass: 12, fail: 3", "PASS: test_login", "first pass: 12ms", "pass: 3/3"),
    *("OLDPWD=/tmp", "PWD=/srv/app-1", "ORACLE_SID=ORCLCDB1", "inside=12345678x1", "sid=41", "pin=17", "led pin: 13", "pin: gpio17", "'pin': 'A0'", "error code: 4821", "status code is 4040"),
    *("SKU 010-12-3456-78", "part no 0555-12-3456-78", "call(20240611123456)", "f(1718093695123)", "order #4539578763621486", "1701021234567", "9001011234567", "ticket#378282246310006"),
    *("de8937040044053201300", "row nl91abna0417164301", "ab 12 34 56 c", "commit ab123456c1", "at 12 34 56", "id=xab123456c", "es9121000418450200051333", "X_AB123456C"),
    *("db:5432:app:ada:running", "db:5432:app:ada:*", "0.0.0.0:5432:5432", "root:x:0:0:root:/root:/bin/bash", "app:v1.2.3@registry:5000", "user:group@host:22", "ada@db1:5432", "https://a@h:22/x"),
    *("secrets:\n  region: us-east-1\n  name: db-creds-1\n", "secrets:\n  db:\n    file: ./db1.txt\n", "secrets:\n  token: ${{ secrets.X1 }}\n", "credentials:\n  host: db1.example.net\n"),
    *('{"secrets": {"name": "db-creds-1x", "image": "app:v1.2.3-rc4"}}', "secrets:\n  kind: token_v12\n  other: api_token2\n", "secrets:\n  note: somewhere\n"),
    *("docker run -p 8080:80 nginx", "docker login -u ada --password-stdin", 'echo "$TOKEN" | docker login -u ada --password-stdin', "mkdir -p /var/lib/mysql/data", "ssh -p 2222 h"),
    *("redis-cli -p 6379 -h h", "redis-cli -a $REDIS_PASSWORD ping", "mysql -u root -p", "mysql -p shop", "htpasswd -c .htpasswd ada", "curl -b cookies.txt https://x", "usage: curl -u <user:password> URL"),
    *("mysql -u root app; mkdir -p/srv/data", "echo hello1 | tee x", "keytool -list -keystore k1.jks", "net user ada /delete", "cf push app1 -p target/a1.jar", "openssl enc -pass file:/run/p"),
    *("vault login -method=oidc", "rabbitmqctl set_permissions -p / bus", "smbclient -U ada //srv/share", "security find-identity -v -p codesigning", "identified by nobody", "sqlplus / as sysdba"),
    *("reset_password endpoint2 failed", "userPassword validator2 raised", "enum: password|oauth2|apikey", "name|password|email1|", "| password | varchar(255) |", "password|string|required"),
    *("password for user 41: expired", "token for worker-1: expired", "[sudo] password for ada: ", "password('Password:')", "secret('prod/db1')", "the password is base64-encoded"),
    *('variable "db_password" {\n  type = string\n}', 'variable "db_password" {\n  default = ""\n}', "<key>password</key>\n<string></string>", "Key (token)=(null) is not present", "a</key><string>x1y2z3"),
    *("pass `thread=False1` on", "METHOD can be 'md5', 'password', 'scram-sha-256',", "survey?r=x&sid=827389&lang=en", "/^(login|password|account9x)$/) {", "xcurl -u a:b9c8d7e x", "password == func.md5('a')"),
    *("https://x.org/bottom/1", "/bot1234567:abc/x", "telegram chat 5194007951", "Bot('alpha')", "abcdefghijklmnopqrstuvwxyz" * 2, "sl3ep" * 11, '"password","password2","email"'),
)  # fmt: skip
