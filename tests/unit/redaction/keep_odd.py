# SPDX-License-Identifier: Apache-2.0
"""A second corpus of harmless texts, written as a stranger would: odd code, odd logs, odd numbers."""

from __future__ import annotations

from .keep import lines

TRACEBACKS = r"""
  File "/app/auth.py", line 12, in login
    token = self.client.fetch_token(url, username=user, password=pw)
  File "/app/db.py", line 40, in connect
    return psycopg.connect(self.dsn, password=self.password, **kwargs)
  File "/usr/lib/python3.11/getpass.py", line 77, in unix_getpass
    passwd = _raw_input(prompt, stream, input=input)
  File "/app/jwt.py", line 3, in decode
    payload = jwt.decode(token, key, algorithms=[alg])
  File "/app/http.py", line 9, in send
    headers["Authorization"] = "Bearer %s" % token
  File "/app/x.py", line 1, in <module>
    secret = base
  File "/app/x.py", line 2, in f
    token = tokens[0]
"""

TEXTS = r"""
raise AuthenticationError("No api_key provided")
cookies=cookies,
cookies=self.cookies,
cookies: CookieTypes | None = None,
def update(self, cookies: CookieTypes | None = None) -> None:  # type: ignore
quote_cookie=self._quote_cookie,
cookie = "cookie"
expected_authorization: str | None,
assert len(creds) == 2
A user in the organization, identified by tagged id and email address.
SECRET_KEY = 'aws_secret_access_key'
apiKey = "apiKey"
def unix_getpass(prompt='Password: ', stream=None):
print("shlex: raw token=" + repr(result))
print("Token: " + repr(tt))
if token == "@":
if token == "-":
token = b64encode(userpass).decode()
headers = {"X-aws-ec2-metadata-token": imdsv2_session_token}
request.headers["Authorization"] = f"Bearer {self._get_token()}"
ensure the token is **removed** from the path
__all__ = ['Cookie', 'CookieJar', 'CookiePolicy', 'DefaultCookiePolicy',
HEADERS = ("authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token")
credentials = f"{client_id}:{client_secret}"
internal_logger.warning("Can not load cookies: Illegal cookie name %r", key)
raise ConfigurationError(f"unknown key: {key}")
logger.debug("token refreshed for %s", user)
logger.info("password updated", extra={"user": user})
assert response.headers["set-cookie"]
assert "password" not in payload
if "token" in headers:
token = headers.get("X-Token")
token = next(tokens)
tokens = text.split()
key = tuple(sorted(parts))
keys = list(mapping)
api_key = api_key or default_api_key
secret = secrets.token_urlsafe(32)
password = input("Password: ")
password = prompt("Enter password")
password = click.prompt("Password", hide_input=True)
self.session = aiohttp.ClientSession()
session.headers.update(headers)
session=session
session=None
auth=auth
auth=HTTPBasicAuth(user, password)
auth=(user, password)
cookies=cookies
cookies=None
cookies=self.cookies
signature = inspect.signature(function)
signature = hmac.new(key, body, sha256).hexdigest()
nonce = os.urandom(16)
salt = bcrypt.gensalt()
passphrase = None
pwd = os.getcwd()
dsn = build_dsn(settings)
dsn=None
credentials = service_account.Credentials.from_file(path)
credentials=credentials
creds = None
type Token = str
Token(type=NAME, value=x)
Token.Keyword
token.type
tokenize.TokenError: ('EOF in multi-line statement', (2, 0))
KeyError: 'AWS_SECRET_ACCESS_KEY'
KeyError: 'api_key'
EnvironmentError: DB_PASSWORD is not set
Environment variable API_KEY is missing
Set OPENAI_API_KEY to use this feature
please set the API_KEY environment variable
Error: secret prod/app not found in namespace default
pods "app" is forbidden: User "x" cannot get resource "secrets"
secrets "tls" already exists
invalid_grant: Token has been expired or revoked.
{"error": "invalid_token", "error_description": "The access token expired"}
{"error": {"code": "invalid_api_key", "param": null}}
{"password": ["This field is required."]}
{"password": ["This password is too short. It must contain at least 8 characters."]}
{"loc": ["body", "password"], "msg": "field required", "type": "value_error.missing"}
{"required": ["password", "token"], "properties": {"password": {"type": "string"}}}
{"password": {"type": "string", "minLength": 8}}
{"token": true, "secret": false}
{"password": "********", "user": "bob"}
{"authorization": null}
{"session": null, "cookies": {}}
{"tokens": 512, "max_tokens": 1024}
{"input_tokens": 25, "output_tokens": 100}
{"finish_reason": "length", "usage": {"total_tokens": 100}}
{"key": "name", "value": "bob"}
{"name": "PORT", "value": "8080"}
{"name": "LOG_LEVEL", "value": "debug"}
- name: PORT
  value: "8080"
password: {{ vault_password }}
password: !vault |
password: <your password here>
password: <PASSWORD>
api_key: YOUR_API_KEY_HERE is required
token: ${{ secrets.GITHUB_TOKEN }}
token: ${GITHUB_TOKEN}
PASSWORD=$PASSWORD
PASSWORD="${PASSWORD}"
export TOKEN=$(vault read -field=token secret/app)
--password "$PASSWORD"
--password-stdin
--token-ttl 3600
docker login --username u --password-stdin
mysql -u root -p
mysql -p -h db
ssh -p 2222 host
docker run -p 8080:80 app
docker run -u 1000:1000 app
curl -u "$USER:$PASS" https://x.example.com
curl https://x.example.com/a
mkdir -p /a/b/c
cp -p a b
SELECT token, count(*) FROM sessions GROUP BY token
CREATE TABLE users (id int, password text, token varchar(64))
ALTER TABLE users ADD COLUMN password_hash text
INSERT INTO t (key, value) VALUES ($1, $2)
WHERE password = ? AND token = ?
<input type="password" name="password" id="password" autocomplete="current-password">
<label for="password">Password</label>
<token/>
<secret></secret>
password (required)
password [optional]
Password:
Enter password:
(using password: YES)
(using password: NO)
Access denied for user 'app'@'localhost' (using password: YES)
password authentication failed
password sha256 digest
2 tokens, 3 keys
key 42 not found
token 17 of 512
step 3/10 tokens/s=1523.4
tokens_per_second: 88.2
secret santa
authored-by: x
co-authored-by bot
Author: X
signed-off-by: X
sign in
signal: killed
assignee: bob
design: v2
passing: 12, failing: 0
passed: true
2 passed, 1 failed in 0.12s
compass: 12
the pass is closed
code: 404
code=E1001
exit code: 137
error code: 28P01
zip code: 12345
X-Request-Id: 4f2a7c3e9b1d4f6a8c0e2d4b6f8a1c3e
X-Trace: 1-5759e988-bd862e3fe1be46a994272793
cf-ray: 7d3f1c2e3b4a4c5d-FRA
x-goog-hash: crc32c=n03x6A==
Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT
Server: nginx/1.25.3
id: 3f8a9b2c-1d4e-4f6a-9b8c-7d6e5f4a3b2c
deployment-7d9f8c6b5-x2v4q
app-5c689d88bb-qqqqq
ip-10-0-12-34.eu-west-1.compute.internal
i-0abc123def4567890
vpc-0a1b2c3d4e5f67890
sg-0123456789abcdef0
projects/123456789/secrets/db/versions/4
gs://bucket/a/b/c.json
s3://bucket/key=1/date=2024-05-01/part-00000.parquet
hdfs://nn:8020/a/b
file:///etc/passwd
/etc/passwd
/run/secrets/db_password
/var/run/secrets/kubernetes.io/serviceaccount/token
~/.ssh/id_rsa.pub
/auth/token
/api/v1/tokens/42
https://auth.example.com/oauth/token
https://example.com/reset-password
https://example.com/?next=/login
https://example.com/?key=users&sort=asc
https://example.com/?code=US
https://example.com/search?q=password+manager
https://docs.example.com/errors#invalid-api-key
https://user@example.com/x
ssh://deploy@host/x
rsync -a x deploy@host.example.com:/srv/app
pip install git+https://github.com/o/r@v1.2.3
npm:react@18.2.0
node_modules/.pnpm/react@18.2.0/node_modules/react
ghcr.io/o/app@sha256:9fceb02d0ae598e95dc970b74767f19372d61af89fceb02d0ae598e95dc970b7
foo@bar
@media (max-width: 600px)
@Override
@Autowired private TokenService tokenService;
x@y
12:34:56 PM
+00:00
UTC+09:00
-0500
+12.5%
1e-10
3.14159265358979
0.30000000000000004
1,000,000
1_000_000_000
0b101010101010
1234567890123456789012345678901234567890
192.168.0.1-192.168.0.254
255.255.255.0
10.0.0.0/8
port 5432
3000 4000 5000
100 200 300 400
1 2 3 4 5 6 7 8 9 10 11 12
01 02 03 04 05 06 07 08 09 0a 0b
00000010: 4142 4344 4546 4748 494a 4b4c 4d4e 4f50
0000-00-00 00:00:00
2024-W18-3
20240501T123456Z
20240501-123456-789
1714566896.789012 1714566897.123456
#1234567890
PR #12345 issue 67890
ISBN 9783161484100
EAN 4006381333931
IMEI of none
MAC 00-1A-2B-3C-4D-5E
CVE-2024-12345
RFC 7519 section 4.1
RSA 2048 bits
AES-256-GCM
SHA-256
TLSv1.3
Python 3.11.2 (main, Apr 28 2025, 14:11:48) [GCC 12.2.0]
linux-x86_64-gnu-6.1.0-18-amd64
"""

KEPT_ODD: list[str] = [*lines(TEXTS), TRACEBACKS, TRACEBACKS.replace("\n", "\\n"), TEXTS]
"""Lines one by one, and blocks whole."""
