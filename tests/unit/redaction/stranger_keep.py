# SPDX-License-Identifier: Apache-2.0
"""Everyday text without a secret, as a stranger would collect it: not a character of it may change.

One case per line of a block, and one per block where lines belong together. Written without a look at the other corpora.
"""

from __future__ import annotations

LINES = r"""
10.1.2.3 - - [11/Jun/2024:09:14:55 +0000] "GET /assets/app.3f2a9c1b.js HTTP/1.1" 200 51234 "-" "Mozilla/5.0 (X11; Linux x86_64)"
10.1.2.3 - frank [11/Jun/2024:09:14:55 +0000] "POST /login HTTP/1.1" 302 0 "https://example.org/login" "curl/8.5.0"
2024/06/11 09:14:55 [error] 31#31: *1042 connect() failed (111: Connection refused) while connecting to upstream, client: 10.0.0.7
2024/06/11 09:14:55 [warn] 31#31: *7 an upstream response is buffered to a temporary file /var/cache/nginx/proxy_temp/1/00/0000000001
::1 - - [11/Jun/2024:09:14:55 +0000] "GET /healthz?token=missing HTTP/2.0" 401 12
2024-06-11 09:14:55.120 UTC [4711] ERROR:  duplicate key value violates unique constraint "users_pkey"
2024-06-11 09:14:55.120 UTC [4711] DETAIL:  Key (id)=(184467) already exists.
2024-06-11 09:14:55.120 UTC [4711] FATAL:  password authentication failed for user "app"
2024-06-11 09:14:55.120 UTC [4711] LOG:  checkpoint complete: wrote 3912 buffers (23.9%); 0 WAL file(s) added, 1 removed
2024-06-11 09:14:55.120 UTC [4711] ERROR:  insert or update on table "orders" violates foreign key constraint "orders_user_id_fkey"
2024-06-11 09:14:55.120 UTC [4711] LOG:  redo starts at 16/B374D848
psql: error: connection to server at "db" (10.0.0.5), port 5432 failed: fe_sendauth: no password supplied
I0611 09:14:55.120304       1 controller.go:615] quota admission added evaluator for: replicasets.apps
E0611 09:14:55.120304    2811 pod_workers.go:1298] "Error syncing pod, skipping" pod="default/web-7d9c6b8f5d-x2x9k" podUID=0c1f7a2e-9a55-4f0e-8f4e-1c2d3e4f5a6b
web-7d9c6b8f5d-x2x9k   1/1     Running   0          3d4h   10.244.1.17   node-2
Warning  BackOff  2m (x12 over 5m)  kubelet  Back-off restarting failed container app in pod web-7d9c6b8f5d-x2x9k_default
secret/app-tls created
Error from server (NotFound): secrets "registry-credentials" not found
MountVolume.SetUp failed for volume "kube-api-access-8k2xq" : object "default"/"kube-root-ca.crt" not registered
  imagePullSecrets: []
  tokenExpirationSeconds: 3607
  secretName: app-tls
  serviceAccountName: default
  automountServiceAccountToken: false
tests/unit/test_login.py::test_password_is_required PASSED                                          [ 42%]
tests/unit/test_login.py::TestToken::test_expired[token-none] FAILED                               [100%]
FAILED tests/test_api.py::test_key_error - KeyError: 'api_key'
E       AssertionError: assert 'token' in {'id': 3, 'name': 'x'}
========================= 3 failed, 1204 passed, 7 skipped in 48.12s =========================
Collecting cryptography==42.0.8
  Downloading cryptography-42.0.8-cp39-abi3-manylinux_2_28_x86_64.whl (3.9 MB)
cryptography==42.0.8 --hash=sha256:a9bb7dd0b1e0b0a5e1b5c1d9e4f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0
Successfully installed PyJWT-2.8.0 passlib-1.7.4 python-jose-3.3.0 itsdangerous-2.2.0
Requirement already satisfied: keyring in ./.venv/lib/python3.11/site-packages (25.2.1)
WARNING: You are using pip version 23.0.1; however, version 24.0 is available.
#12 [build 4/7] RUN --mount=type=secret,id=npmrc npm ci
#12 sha256:4abcf20661432fb2d719aaf90656f55c287f8ca915dc1c92ec14ff61e67fbaf8 29.13MB / 29.13MB 1.2s done
sha256:9b7c8d1f1c9d3a5e7f2b4c6d8e0f1a3b5c7d9e1f3a5b7c9d1e3f5a7b9c1d3e5f
Digest: sha256:2f1cd90e00fe2c3aba0f2b5a1d9d3a7b2d1b0c3e4f5a6b7c8d9e0f1a2b3c4d5e
CONTAINER ID   IMAGE          COMMAND                  CREATED         STATUS         PORTS                    NAMES
f2a9c1b3d4e5   postgres:16    "docker-entrypoint.s…"   2 minutes ago   Up 2 minutes   0.0.0.0:5432->5432/tcp   db-1
docker: Error response from daemon: Conflict. The container name "/db" is already in use by container "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0".
Jun 11 09:14:55 host systemd[1]: Started Session 4412 of User ada.
Jun 11 09:14:55 host sshd[22114]: Accepted publickey for ada from 10.0.0.9 port 51122 ssh2: ED25519 SHA256:n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg
Jun 11 09:14:55 host sshd[22114]: Failed password for invalid user admin from 203.0.113.9 port 40022 ssh2
Jun 11 09:14:55 host sudo[811]: pam_unix(sudo:session): session opened for user root(uid=0) by ada(uid=1000)
Jun 11 09:14:55 host kernel: [12345.678901] audit: type=1400 audit(1718097295.120:88): apparmor="DENIED" operation="open"
Jun 11 09:14:55 host systemd-logind[612]: New session c12 of user gdm.
systemd-ask-password-console.path - Dispatch Password Requests to Console Directory Watch
"InstanceId": "i-0abcd1234ef567890",
"VpcId": "vpc-0a1b2c3d4e5f67890", "SubnetId": "subnet-0123456789abcdef0",
"Arn": "arn:aws:iam::123456789012:role/service-role/app",
"SecretId": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:prod/db-AbCdEf",
"KeyId": "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
"UserId": "AROAEXAMPLE:session-name",
"NextToken": null,
"ETag": "\"d41d8cd98f00b204e9800998ecf8427e\"",
"KeyName": "deploy-2024", "PasswordLastUsed": "2024-06-11T09:14:55+00:00",
An error occurred (ExpiredToken) when calling the GetObject operation: The provided token has expired.
An error occurred (InvalidClientTokenId) when calling the GetCallerIdentity operation: The security token included in the request is invalid.
upload: ./dist/app.js to s3://assets/2024/app.js
commit 9fceb02d0ae598e95dc970b74767f19372d61af8
index 83db48f..bf2a1c3 100644
Merge: 4f3c2b1 9e8d7c6
HEAD is now at 3f2a9c1 Rotate secrets every 90 days
 * [new branch]      feature/token-refresh -> origin/feature/token-refresh
Submodule path 'vendor/zlib': checked out 'cacf7f1d4e3d44d871b605da3b647f07d718623f'
remote: Support for password authentication was removed on August 13, 2021.
fatal: could not read Username for 'https://github.com': terminal prompts disabled
git@github.com:octocat/hello-world.git
ssh://git@bitbucket.org/team/repo.git
	at com.example.auth.TokenService.verify(TokenService.java:118)
	at java.base/java.util.concurrent.ThreadPoolExecutor$Worker.run(ThreadPoolExecutor.java:635)
Caused by: java.lang.IllegalArgumentException: Password must not be empty
java.security.InvalidKeyException: Illegal key size or default parameters
org.springframework.security.authentication.BadCredentialsException: Bad credentials
io.jsonwebtoken.ExpiredJwtException: JWT expired at 2024-06-11T09:14:55Z. Current time: 2024-06-11T10:14:55Z
goroutine 1 [running]:
main.(*Server).checkToken(0xc0000b4000, {0xc00001a0f0, 0x24}, 0x1)
	/go/src/app/server.go:118 +0x1d4
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x6a3f21]
x509: certificate signed by unknown authority
    at Object.<anonymous> (/app/node_modules/jsonwebtoken/verify.js:40:21)
    at async Promise.all (index 0)
TypeError: Cannot read properties of undefined (reading 'accessToken')
JsonWebTokenError: jwt malformed
thread 'main' panicked at src/token.rs:42:9: called `Option::unwrap()` on a `None` value
   3: core::option::unwrap_failed
   7: app::auth::verify_token::h8a7b6c5d4e3f2a1b
error[E0425]: cannot find value `token` in this scope
  --> src/main.rs:14:22
  File "/usr/lib/python3.11/site-packages/jwt/api_jws.py", line 182, in decode_complete
    raise InvalidTokenError("Invalid token type. Token must be a bytes")
jwt.exceptions.DecodeError: Not enough segments
KeyError: 'password'
TypeError: connect() missing 1 required positional argument: 'password'
AttributeError: 'NoneType' object has no attribute 'secret_key'
sqlalchemy.exc.IntegrityError: (psycopg2.errors.UniqueViolation) duplicate key value violates unique constraint "uq_user_token"
<redrive.core.job.Job object at 0x7f3a9c1b2d40>
ConnectionResetError: [Errno 104] Connection reset by peer
SELECT id, password_hash, token FROM users WHERE id = $1 AND token IS NOT NULL
CREATE TABLE api_keys (id bigint PRIMARY KEY, secret text NOT NULL, created_at timestamptz DEFAULT now());
ALTER TABLE users ADD COLUMN password varchar(255) NOT NULL DEFAULT '';
UPDATE users SET password = $1, token = $2 WHERE id = $3
INSERT INTO sessions (id, token, user_id) VALUES (%s, %s, %s)
FOREIGN KEY (account_id) REFERENCES accounts (id) ON DELETE CASCADE
SELECT * FROM users WHERE password = :password AND email = :email
EXPLAIN SELECT 1;  Index Scan using sessions_token_idx on sessions  (cost=0.29..8.31 rows=1 width=72)
.password-field { color: #ff00aa; margin: 0 4px 8px 12px; }
#token-input::placeholder { background: url(data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7) }
@keyframes slide-in { from { transform: translateX(-100%); } }
<input type="password" name="password" autocomplete="current-password" required>
<label for="secret">Secret</label>
<meta name="csrf-param" content="authenticity_token">
<img src="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==">
<script src="/app.js" integrity="sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC"></script>
{"id": "ch_3PQabcDEF456ghi7", "object": "charge", "amount": 1999, "currency": "eur"}
{"id": 184467440737, "uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "created": 1718097295}
{"request_id": "req_8f7e6d5c4b3a2918", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"}
{"usage": {"prompt_tokens": 1204, "completion_tokens": 88, "total_tokens": 1292}}
{"error": {"code": "invalid_api_key", "message": "Incorrect API key provided."}}
{"token_type": "Bearer", "expires_in": 3600, "scope": "read write"}
{"password": ["This field is required."], "token": null}
{"order_id": "ORD-2024-000123", "sku": "AB-1234-XL", "ean": "4006381333931"}
{"next_cursor": "YXJyYXljb25uZWN0aW9uOjA=", "has_more": true}
{"primary_key": "customer_id", "sort_key": "created_at", "partition_key": "tenant-17"}
{"feature_flags": {"new_token_flow": true, "password_reset_v2": false}}
{"level":"info","ts":1718097295.1203,"caller":"auth/token.go:88","msg":"token refreshed","user_id":4711}
{"kty": "RSA", "use": "sig", "kid": "2024-06-key-1", "alg": "RS256"}
{"lat": 52.520008, "lon": 13.404954, "zoom": 12}
{"version": "2.31.0-rc.1+build.4477", "commit": "3f2a9c1b"}
{"keys": ["id", "name", "created_at"], "key": "name"}
{"session": "closed", "cookies": 3, "auth": "none"}
{"cache_key": "user:4711:profile:v2", "etag": "W/\"5e15153d-120f\""}
{"idempotency_key": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}
{"public_key": "ssh-ed25519 comment"}
traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
X-Request-Id: 7f3d2c1b0a998877665544332211ffee
X-Amzn-Trace-Id: Root=1-5759e988-bd862e3fe1be46a994272793
CF-RAY: 8921f2a3bc4d5e6f-FRA
Content-Type: multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW
WWW-Authenticate: Bearer realm="example", error="invalid_token"
Access-Control-Allow-Headers: Authorization, X-Api-Key, Cookie
Strict-Transport-Security: max-age=63072000; includeSubDomains; preload
Vary: Accept-Encoding, Cookie, Authorization
Public-Key-Pins-Report-Only: max-age=2592000
The token bucket refills at 100 tokens per second.
Forgot your password? Enter the address you signed up with and we will send a link.
A password must have at least 12 characters, one digit and one symbol.
The secret to good bread is patience; the key ingredient is time.
Her key argument: nobody reads the fine print.
He passed the exam on 2024-06-11 at 14:30 with 87/100 points.
We keep tokens short lived (15 minutes) and sessions for 30 days.
Please rotate the API key before Friday and tell the on-call engineer.
Your API key is missing. Set OPENAI_API_KEY in the environment.
Use `--password-stdin` to read the password from standard input.
The session was closed by the server after 600 seconds of inactivity.
Authorization: the process of deciding who may do what.
Basic authentication is deprecated; use Bearer tokens instead.
The bearer of this letter is entitled to one free coffee.
Our cookie policy: we set three cookies and none of them track you.
Invoice 2024-000123 over 1,299.00 EUR is due on 11.06.2024.
Call me Ishmael. Some years ago, never mind how long precisely.
The meeting is in room 4-201, building 12, 3rd floor.
Population: 83 294 633 (2023), area 357 592 km2.
Chapter 12, pages 100-200-300, ISBN 978-3-16-148410-0.
ISSN 2049-3630, DOI 10.1000/xyz123, arXiv:2406.01234v2
Das Passwort muss mindestens zwölf Zeichen lang sein.
Der Schlüssel liegt unter der Fußmatte, das Geheimnis bleibt eines.
Bitte geben Sie Ihr Passwort ein und klicken Sie auf Anmelden.
Die Rechnung Nr. 4711-0815 vom 11.06.2024 beträgt 1.299,00 EUR.
Das Token ist abgelaufen, bitte neu anmelden.
비밀번호는 8자 이상이어야 합니다.
토큰이 만료되었습니다. 다시 로그인해 주세요.
주문번호 2024061112345 가 접수되었습니다.
총 금액은 1,234,567원이며 2024년 6월 11일에 결제됩니다.
사용자 비밀번호 변경이 완료되었습니다.
Le mot de passe doit contenir au moins douze caractères.
La clé du succès, c'est la patience ; le secret est dans la sauce.
Le jeton a expiré, veuillez vous reconnecter.
Facture n° 2024-06-0042 du 11/06/2024 : 1 299,00 €.
Le numéro de commande est 100 200 300, livré en 48 h.
1718097295120
4111111111111112
1234567890123456
1234 5678 9012 3456
order 4000000000000001 shipped
tracking 1Z999AA10123456784
12345678901
86095742710
000-12-3456
666-12-3456
987-65-4321
123-45-67890
DE00123456789012345678
GB00NWBK12345612345678
FR12345
QQ123456C
GB123456A
880216-2721900
999999-1234567
192.168.100.200:8080
10.0.0.0/8, 172.16.0.0/12 and 192.168.0.0/16
2001:0db8:85a3:0000:0000:8a2e:0370:7334
fe80::1ff:fe23:4567:890a%eth0
00:1A:2B:3C:4D:5E
00-1A-2B-3C-4D-5E
001A.2B3C.4D5E
52.520008, 13.404954
+52.5200-013.4050/
1.2.3.4.5
v1.24.0-alpha.3+exp.sha.5114f85
2024-06-11T09:14:55.120304+02:00
20240611T091455Z
11.06.2024 09:14:55,120
Tue, 11 Jun 2024 09:14:55 GMT
$1,299.00 / €1.299,00 / £99.95 / ¥12000
00000000  7f 45 4c 46 02 01 01 00  00 00 00 00 00 00 00 00  |.ELF............|
0x7ffd5e8f3a20 0xdeadbeefcafebabe 0x0000000000000000
d41d8cd98f00b204e9800998ecf8427e
da39a3ee5e6b4b0d3255bfef95601890afd80709
e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
01ARZ3NDEKTSV4RRFFQ69G5FAV
507f1f77bcf86cd799439011
V1StGXR8_Z5jdHi6B-myT
cjld2cjxh0000qzrmn831i7rn
2ZMDc1oQdLlAGT4YGD5kGhmVRfy
md5=9e107d9d372bb6826bd81d3542a419d6
checksum: sha1:2fd4e1c67a2d28fced849ee1bb76e7391b93eb12
SHA256 (app.tar.gz) = b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c
pages 10-20, 030-040, lines 100-2000
size=1048576 offset=4294967296 count=65536
pid=4711 ppid=1 uid=1000 gid=1000 tty=pts/0
elapsed=0.123456789s rss=123456789 vsz=987654321
job 01HZX3V6Q8K2M4N6P8R0T2V4W6 attempt 3 of 5 failed
DEBUG=true LOG_LEVEL=info WORKERS=4 PORT=8080
FEATURE_NEW_TOKEN_UI=enabled
TOKEN_TTL=3600
PASSWORD_MIN_LENGTH=12
SECRET_ROTATION_DAYS=90
API_KEY_HEADER=X-Api-Key
KEY_PREFIX=cache:v2:
SESSION_COOKIE_NAME=sid
SESSION_COOKIE_SECURE=True
AUTH_BACKEND=ldap
AUTH_URL=https://auth.example.org/oauth2/authorize
TOKEN_URL=https://auth.example.org/oauth2/token
PASSWORD_FILE=/run/secrets/db_password
DB_PASSWORD_FILE=/run/secrets/db_password
SSH_KEY_PATH=~/.ssh/id_ed25519
GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/credentials.json
AWS_PROFILE=prod AWS_REGION=eu-central-1
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
CSRF_TRUSTED_ORIGINS=https://example.org
password = getpass.getpass("Password: ")
password = os.environ["DB_PASSWORD"]
token = request.headers.get("Authorization", "").removeprefix("Bearer ")
if password != confirm_password:
def verify(self, token: str, *, secret: bytes = b"") -> bool:
api_key: str | None = None
self._token = token
secret = secrets.token_urlsafe(32)
return {"token": token, "expires": expires}
const { token, secret } = req.body;
const apiKey = process.env.API_KEY;
let password = prompt("Password?");
if (user.password === hash(password)) {
headers: { Authorization: `Bearer ${token}` },
password := os.Getenv("PASSWORD")
type Config struct { Password string `json:"password"` }
private final String password;
@Value("${spring.datasource.password}") String password;
for key, value in sorted(mapping.items()):
sorted(rows, key=lambda row: row.created_at)
key = f"{tenant}:{user}:{day}"
dict(key=value, token=token)
assert token is not None, "token must be set"
logger.info("token refreshed for %s", user.id)
raise ValueError("password too short")
password: ${DB_PASSWORD}
password: "{{ vault_db_password }}"
password: !vault-encrypted
token: ${{ secrets.GITHUB_TOKEN }}
api_key: <your-api-key>
password: ********
secret: '***'
token=[REDACTED]
Authorization: Bearer <token>
Authorization: Bearer $TOKEN
Cookie: <redacted>
postgresql://db.internal:5432/app
https://example.org/users/4711/reset-password?step=2
https://example.org/a@b/c
redis://cache:6379/0
http://[::1]:8080/health
https://user@example.org/
ssh ada@build-01
npm ERR! code E401
npm ERR! Unable to authenticate, your authentication token seems to be invalid.
cargo build --release --features token,secret
kubectl get secret app-tls -o jsonpath='{.data.tls\.crt}'
kubectl create secret generic app --from-file=./app.env
aws secretsmanager get-secret-value --secret-id prod/db
openssl rsa -in key.pem -pubout -out pub.pem
ssh-keygen -t ed25519 -f ~/.ssh/id_ed25519 -N ''
ssh -p 2222 ada@host
docker run -p 8080:80 nginx
mysql -u root -p app
mkdir -p /var/lib/app
curl -u "$USER:$PASS" https://api.example.org
gpg --list-secret-keys --keyid-format=long
cat ~/.aws/credentials | grep -c key
tar -xzf app.tar.gz -C /opt
AuthenticationFailedError: user 4711 gave a wrong password 3 times
com.example.PasswordEncoderFactory$$EnhancerBySpringCGLIB$$1a2b3c4d
org.apache.kafka.common.security.auth.SaslExtensionsCallback
NSURLErrorDomain Code=-1012 "(null)" UserInfo={NSErrorFailingURLKey=https://example.org}
CSRF token missing or incorrect.
token count: 4096, token limit: 8192
tokens=1234 cost=0.0123
max_tokens=2048 temperature=0.7
key 'user:4711' not found in cache
key=value pairs, one per line
primary key: id
public key: see the website
hotkey: Ctrl+Shift+P
session=<redacted:secret>, code=VCm9HTyy-Lw
DB_PASS=<redacted:password> code: AB12CD34
key: 4bf92f3577b34da6a3ce929d0e0e4736.json
s3 key: images/2024/06/11/9f8e7d6c5b4a.png
ssh key SHA256:n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg
for key 4bf92f3577b34da6a3ce929d0e0e4736 not found
root:${MYSQL_PASSWORD}@tcp(db:3306)/app
MYSQL_ROOT_PASSWORD environment variable
test_PasswordResetV2WithTokenAndKeyRotation
Token(type='NAME', string='x')
keyboard: de-latin1-nodeadkeys
passenger: 14C
compass: north
passed: 1204
author: Ada
authority: example.org
secretary: Ms Smith
tokenizer: cl100k_base
signature: (self, name: str) -> None
signal: 9
code: 404
status code: 500
error code: E1001
zip code: 10115
country_code=DE
exit code 137
passport office opens at 9
password changed successfully
password reset requested
password: required
password is too weak
token expired
secret not found
session expired
the secret is out
token: unexpected end of input
unexpected token '<', "<!DOCTYPE "... is not valid JSON
Unexpected token } in JSON at position 42
credentials: include
auth: disabled
login: ada
user: postgres
account: 4711
pin: A7
otp: enabled
nonce: 42
salt: to taste
cookie: accepted
cookies: 12
sid: 7
sess: 3
cred: none
hmac: sha256
dsn: unset
jwt: RS256
"""

BLOCKS: tuple[str, ...] = (
    (
        'Traceback (most recent call last):\n  File "/srv/app/token.py", line 12, in load\n    token = load_token(path)\n'
        "            ^^^^^^^^^^^^^^^^\nFileNotFoundError: [Errno 2] No such file or directory: '/run/secrets/token'"
    ),
    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: app\n  uid: 0c1f7a2e-9a55-4f0e-8f4e-1c2d3e4f5a6b\ntype: Opaque\n",
    "env:\n- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: db\n      key: password\n",
    "diff --git a/token.py b/token.py\nindex 83db48f..bf2a1c3 100644\n--- a/token.py\n+++ b/token.py\n@@ -1,4 +1,4 @@\n",
    "-----BEGIN CERTIFICATE REQUEST FORM-----\nname:\ncountry:\n",
    "password:\n  min_length: 12\n  max_length: 128\n",
    "token:\n- read\n- write\n",
    "secrets:\n  - source: db_password\n    target: /run/secrets/db_password\n",
    "key:\n\nvalue:\n",
    'def login(user: str) -> Token:\n"format": "password"\n',
    "| id | token | created_at |\n|----|-------|------------|\n| 17 | NULL  | 2024-06-11 |\n",
    "a,b,c\n1718097295,4711,0.25\n1718097296,4712,0.50\n",
    "class Password(BaseModel):\n    value: SecretStr\n    rounds: int = 12\n",
    "services:\n  db:\n    image: postgres:16\n    environment:\n      POSTGRES_PASSWORD_FILE: /run/secrets/db\n",
    "uses: actions/checkout@b4ffde65f46336ab88eb53be808477a3936bae11 # v4.1.1\nwith:\n  token: ${{ github.token }}\n",
    "$ pip hash app.whl\n--hash=sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n",
)

KEEP = [*(line for line in LINES.splitlines() if line), *BLOCKS]
