# SPDX-License-Identifier: Apache-2.0
"""Texts that look telling but hold no secret: every one of them must come out unchanged."""

from __future__ import annotations

CODE = r"""
def login(user, password):
def login(self, user: str, password: str) -> Token:
async def fetch(token: str | None = None, *, api_key: Optional[str] = None) -> dict:
password: str
password: str = None
password: Optional[str] = None
password=None
password=None, token=None
token: str = Field(...)
api_key: SecretStr
password = os.environ["DB_PASSWORD"]
password = os.environ.get("DB_PASSWORD")
password = os.getenv('DB_PASSWORD')
password = getpass()
password = getpass.getpass("Password: ")
token=self.token
api_key=settings.api_key
api_key = config["api_key"]
client = Client(token=token, api_key=api_key)
client = Client(api_key=self._api_key, secret=self.secret)
conn = connect(host=host, user=user, password=password)
conn = psycopg.connect(password=cfg.password, dbname=cfg.dbname)
headers = {"Authorization": f"Bearer {token}"}
headers = {"Authorization": "Bearer " + token}
headers["Authorization"] = auth
if password is None:
if not token:
assert token is not None
raise ValueError("password must not be empty")
raise KeyError("api_key")
secret = load_secret()
secret = vault.read("kv/app")
self.password = password
self._token = token
this.token = token;
const token = await getToken();
const { password, token } = req.body;
String password = request.getParameter("password");
private String password;
password := r.FormValue("password")
token, err := jwt.Parse(raw, keyFunc)
return token.split(".")
user.set_password(raw_password)
check_password(password, user.password)
hash = bcrypt.hashpw(password.encode(), bcrypt.gensalt())
for key, value in mapping.items():
key=lambda item: item.name
sorted(rows, key=itemgetter(1))
max(scores, key=scores.get)
@dataclass
@dataclass(frozen=True)
@app.route("/login")
@pytest.mark.parametrize("token", [])
from secrets import token_hex
from tokenize import tokenize
import getpass
class TokenBucket:
class PasswordPolicy(BaseModel):
class Session(sessionmaker):
session = Session()
session: Session
session = sessionmaker(bind=engine)
with requests.Session() as session:
cookies = jar
cookie_jar=CookieJar()
response.set_cookie("theme", "dark")
token_count=123
max_tokens: 4096
max_tokens=4096
total_tokens=1532 prompt_tokens=1200 completion_tokens=332
"usage": {"prompt_tokens": 12, "completion_tokens": 30, "total_tokens": 42}
tokens=512
tokenizer=AutoTokenizer
"tokenizer": "cl100k_base"
num_tokens: 17
password_policy: strict
password_min_length=12
password_reset_enabled=true
password_changed_at: 2024-05-01T10:00:00Z
secretary=Anna
author=Alice
author: Bob Smith
authority=https://login.example.com
authors = ["A. Person"]
monkey=banana
keyboard=qwerty
keystone: true
primary_key=id
primary_key: true
sort_key=created_at
partition_key=tenant
foreign_key=users.id
idempotency_key=7b0c8b8e-6a4e-4f6e-9d3c-2b8f8a6c1d2e
cache_key=user:42:profile
object_key=reports/2024/05/summary.parquet
s3_key=backups/db/2024-05-01.dump.gz
routing_key=orders.created
key=value
key: value
key=user_id
key='name'
key_id=42
key_name=default
public_key_path=/etc/ssl/public.pem
session_count=12
session_timeout=3600
sessions=4
secret_name=prod/db/credentials
secretName: db-credentials
secretKeyRef:
token_type=bearer
"token_type": "Bearer", "expires_in": 3600
token_url=https://auth.example.com/token
token_ttl=300
auth=basic
auth_method=oidc
auth: required
auth_backend=ldap
authentication=enabled
authenticated=true
authorization_endpoint=https://auth.example.com/authorize
signature_version=s3v4
signature: (self, request)
signature_algorithm=sha256
salt_rounds=12
nonce_size=16
code=404
status_code=503
error_code=INVALID_TOKEN
country_code=KR
passed=12 failed=3
passes: 3
bypass=true
compass=north
passenger=Smith
pass
    pass
first_pass=true
design=flat
signal=SIGTERM
credentials=same-origin
credentials: include
"""

MESSAGES = r"""
KeyError: 'password'
KeyError: "token"
missing required field "password"
ValidationError: password: field required
password: This field is required.
password: must be at least 8 characters
password must contain a digit
Password is required
Password is too short
password is incorrect
The password is invalid
the token is expired
Token is missing
token is not valid yet
Invalid token
invalid token: unexpected end of input
Unexpected token: }
SyntaxError: Unexpected token '<', "<!DOCTYPE "... is not valid JSON
SyntaxError: Unexpected token < in JSON at position 0
yaml.scanner.ScannerError: found character that cannot start any token
could not find expected ':' while scanning a simple key
AttributeError: 'NoneType' object has no attribute 'token'
TypeError: login() missing 1 required positional argument: 'password'
TypeError: __init__() got an unexpected keyword argument 'api_key'
openai.AuthenticationError: Error code: 401 - invalid API key provided
psycopg.OperationalError: password authentication failed for user "app"
FATAL:  password authentication failed for user "postgres"
fe_sendauth: no password supplied
botocore.exceptions.NoCredentialsError: Unable to locate credentials
google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.
redis.exceptions.AuthenticationError: Authentication required.
401 Unauthorized: Authorization header is missing
Authorization: required
missing Authorization header
Authorization: None
WWW-Authenticate: Basic realm="api"
no cookie was sent
Cookie: None
cookies are disabled
session expired
Session is closed
session not found
secret not found: prod/db
secret "db-credentials" not found
duplicate key value violates unique constraint "users_email_key"
Key (id)=(42) already exists.
DETAIL:  Key (email)=(x) already exists.
public key verification failed
host key verification failed.
api key is missing
API key: missing
api_key is required
password: ********
password=***
password=<hidden>
password=[FILTERED]
password=[REDACTED]
password=xxxxxxxx
password=
password: ""
password=''
"password": null
"password": ""
"password": "string"
{'password': None, 'token': ''}
password=${DB_PASSWORD}
password: ${{ secrets.DB_PASSWORD }}
password=$DB_PASSWORD
password=$(cat /run/secrets/db)
password={{ db_password }}
password=%s
password=%(password)s
"INSERT INTO users (name, password) VALUES (%s, %s)"
SELECT id, password, token FROM users WHERE id = 1
UPDATE users SET password = $1 WHERE id = $2
--password-file /run/secrets/db
--token-file=/var/run/token
POSTGRES_PASSWORD_FILE=/run/secrets/pg
fields: ['password', 'username']
required = ("password", "token")
<input name="password" type="password">
<password></password>
type: password
"format": "password"
usage: tool [--password PASSWORD] [--token TOKEN]
the key is in the drawer
the token was refreshed
keys: a, b, c
secrets: []
credentials: {}
expected token 'end of statement block', got '}'
lexer: token=IDENT line=3 col=7
no tokens left in bucket
rate limit: 30000 tokens per minute
"""

THINGS = r"""
123e4567-e89b-12d3-a456-426614174000
request id 7d9f1c2e-3b4a-4c5d-8e6f-0a1b2c3d4e5f
commit 3f2504e
commit 9fceb02d0ae598e95dc970b74767f19372d61af8
HEAD is now at 9fceb02 fix the parser
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  file.tar.gz
d41d8cd98f00b204e9800998ecf8427e
ETag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
etag: W/"686897696a7c876b7e"
image: registry.example.com/app@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
x-request-id: req_011CSHoEeqs5C35K2UUqR7Fy
request_id=req_8f14e45fceea167a5a36dedd4bea2543
x-amzn-RequestId: 7a62c49f-347e-4fc4-9331-6e8e7a1f2b3c
x-amz-id-2: eftixk72aD6Ap51TnqcoF8eFidJG9Z/2mkiDFu8yU9AS1ed4OpIszj7UDNEHGran
traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7
01ARZ3NDEKTSV4RRFFQ69G5FAV
507f1f77bcf86cd799439011
arn:aws:iam::123456789012:role/service-role/MyRole
arn:aws:s3:::my-bucket/prefix/key
arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-AbCdEf
projects/my-project/locations/us-central1/clusters/main
2024-05-01T12:34:56.789Z
2024-05-01 12:34:56,789
2024-05-01T12:34:56+09:00
Wed, 01 May 2024 12:34:56 GMT
1714566896
1714566896789
1714566896789012
1714566896789012345
ts=1714566896.789012
10.0.0.1:5432
192.168.100.200
2001:db8::ff00:42:8329
fe80::1ff:fe23:4567:890a
00:1A:2B:3C:4D:5E
version 3.11.2
v1.2.3-rc.4+build.567
python-3.11.2-cp311-manylinux_2_17_x86_64.whl
requests==2.31.0
lodash@4.17.21
@types/node@18.11.9
npm install @scope/package@1.2.3
git@github.com:org/repo.git
ssh://git@github.com/org/repo.git
git clone git@gitlab.example.com:group/project.git
https://example.com/path?page=2&size=10
https://example.com/a/b/c#section
http://localhost:8080/health
https://medium.com/@user/post-title
https://api.example.com/v1/users/42/orders?sort=asc&limit=100
s3://bucket/path/to/object.parquet
postgresql://localhost:5432/app
postgresql://app@localhost/app
redis://localhost:6379/0
jdbc:postgresql://db.internal:5432/app?ssl=true
/usr/lib/python3.11/site-packages/requests/sessions.py
C:\Users\runner\work\project\src\main.py
/home/app/.config/tool/settings.toml
ISBN 978-3-16-148410-0
ISBN 0-306-40615-2
order ORD-2024-000123
invoice INV-2024-00012345
ticket JIRA-12345
SKU-555-123-4567
$1,234,567.89
EUR 1.234.567,89
1 234 567 890 bytes
37.5665, 126.9780
+37.5665 -122.4194
lat=37.774929 lon=-122.419416
0x7f8a3c0b1d30
<object object at 0x7f8a3c0b1d30>
<Session object at 0x7f2b1c3d4e5f>
pid 12345 tid 139872345678901
offset 123456789012
id=123456789012345678
user_id=1234567890
account 123456789012
tweet 1456789012345678901
build 20240501123456
1234567890
12345678901
0123456789abcdef
00000000-0000-0000-0000-000000000000
9999999999999999
0000 0000 0000 0000
4111 1111 1111 1112
1234-5678-9012-3456
000-12-3456
666-12-3456
900-12-3456
123-45-67890
2024-05-01
05/01/2024
01-02-2024 03:04
12:34:56.789012
64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.045 ms
icon@2x.png
getty@tty1.service
A@B
x = a @ b
y = q @ k.transpose(0, 1)
matrix@vector.dot(x)
GB00 WEST 1234 5698 7654 32
DE00370400440532013000
AB 12 34
QQ123456C
5 x 10 = 50
HTTP/1.1 200 OK
Content-Length: 123456789
Content-Type: application/json; charset=utf-8
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36
If-None-Match: "abc"
Accept: */*
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4
MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ
sha512-WFN04846TKIL5Q5CG9PEnzlV1+BmSqEBsHMTuNUs5x0mN1nwxQxPz2dUNvYmGFAhYl5VA9E0NNnzVJdEP1ZTaA==
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl
test_something_that_is_quite_long_and_has_2_digits
some-very-long-kebab-case-name-with-parts-42
com.example.service.SomeVeryLongClassNameFactoryBean
"""


def lines(block: str) -> list[str]:
    """Return the lines of a block that hold something."""
    return [line for line in block.splitlines() if line.strip()]


PEM_PUBLIC = (
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUF\n-----END CERTIFICATE-----\n"
)
PEM_PUBLIC_KEY = (
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----\n"
)

KEPT: list[str] = [*lines(CODE), *lines(MESSAGES), *lines(THINGS), PEM_PUBLIC, PEM_PUBLIC_KEY]
"""Several hundred texts that stay as they are."""
