# SPDX-License-Identifier: Apache-2.0
"""Secrets in the places where they really turn up. `{}` is the secret; the rest of each text must survive."""

from __future__ import annotations

AUTHORIZATION = r"""
Authorization: Bearer {}
authorization: bearer {}
Authorization: Basic {}
Authorization: Token {}
Authorization: ApiKey {}
Authorization: Digest username="u", realm="r", nonce="n", uri="/", response="{}"
Authorization: AWS4-HMAC-SHA256 Credential=x/20240501/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature={}
Authorization: MyScheme {}
Authorization: {}
Proxy-Authorization: Basic {}
{{'Authorization': 'Bearer {}', 'Accept': '*/*'}}
{{"Authorization": "Bearer {}", "Accept": "*/*"}}
{{"headers": "{{\"Authorization\": \"Bearer {}\"}}"}}
{{b'authorization': b'Bearer {}', b'host': b'x'}}
[(b'authorization', b'Bearer {}'), (b'host', b'x')]
[('Authorization', 'Token {}')]
[["authorization", "Basic {}"], ["host", "x"]]
Headers({{'host': 'x', 'authorization': 'Bearer {}'}})
curl -H 'Authorization: Bearer {}' https://x.example.com/v1
curl -H "Authorization: Token {}" -X POST https://x.example.com/v1
curl --header "authorization: {}" https://x.example.com/v1
send: b'GET / HTTP/1.1\r\nAuthorization: Bearer {}\r\nHost: x\r\n\r\n'
DEBUG:http.client:header: Authorization: Bearer {}
> Authorization: Bearer {}
HTTP_AUTHORIZATION=Bearer {}
{{"name": "Authorization", "value": "Bearer {}"}}
-H authorization:{}
X-Api-Key: {}
x-api-key: {}
curl -H 'X-API-Key: {}' https://x.example.com/
api-key: {}
X-Auth-Token: {}
Ocp-Apim-Subscription-Key: {}
PRIVATE-TOKEN: {}
X-Amz-Security-Token: {}
X-Vault-Token: {}
grpc metadata: ('authorization', 'Bearer {}')
request failed with Bearer {}
"""

COOKIES = r"""
Cookie: sid={}
Cookie: theme=dark; sessionid={}; lang=en
Set-Cookie: sid={}; Path=/; HttpOnly
set-cookie: token={}; Secure
{{'Cookie': 'a=b; sid={}'}}
{{"set-cookie": "sid={}; Path=/"}}
[(b'cookie', b'sid={}')]
curl -H 'Cookie: sid={}' https://x.example.com/
curl --cookie "sid={}" https://x.example.com/
< Set-Cookie: JSESSIONID={}; Path=/app
"""

URLS = r"""
postgres://app:{}@db.example.com:5432/app
postgresql+asyncpg://app:{}@db/app?sslmode=require
mysql://root:{}@localhost/app
redis://:{}@cache:6379/0
rediss://default:{}@cache:6379
mongodb+srv://app:{}@cluster0.example.net/test?retryWrites=true
amqp://guest:{}@mq:5672/vhost
https://user:{}@example.com/path
https://oauth2:{}@gitlab.example.com/g/p.git
https://{}{}@github.com/o/r.git
ftp://u:{}@files.example.com/a
smtp://mailer:{}@smtp.example.com:587
sqlalchemy.exc.OperationalError: (psycopg.OperationalError) postgres://app:{}@db/app failed
DATABASE_URL=postgres://app:{}@db.example.com/app
{{"url": "postgres://app:{}@db.example.com/app"}}
jdbc:mysql://db:3306/app?user=app&password={}
jdbc:sqlserver://db:1433;databaseName=app;user=sa;password={};encrypt=true
jdbc:oracle:thin:scott/x@//db:1521/orcl password={}
host=db port=5432 dbname=app user=app password={}
host=db password='{}' dbname=app
Driver={{ODBC Driver 18}};Server=db;Uid=app;Pwd={};Encrypt=yes;
Server=db;User Id=sa;Password={};
DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.net
Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={}
https://a.blob.core.windows.net/c/f?sv=2022-11-02&sr=b&sig={}&se=2024-05-02
https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature={}
https://b.s3.amazonaws.com/k?X-Amz-Security-Token={}&X-Amz-Date=20240501T000000Z
https://storage.googleapis.com/b/o?X-Goog-Signature={}
https://maps.example.com/api?key={}&q=x
https://app.example.com/cb?code={}&state=x
https://app.example.com/cb?access_token={}
https://app.example.com/cb#access_token={}&token_type=bearer
https://api.example.com/?api_key={}
https://api.example.com/?apikey={}&x=1
https://api.example.com/?client_id=x&client_secret={}
https://api.example.com/?token={}
https://api.example.com/?auth_token={}
https://api.example.com/?signature={}
https://api.example.com/?refresh_token={}
next=https%3A%2F%2Fapp%2Fcb%3Faccess_token%3D{}%26x%3D1
https://hooks.slack.com/services/T00000000/B00000000/{}
https://discord.com/api/webhooks/123456789012345678/{}{}{}
"""

ASSIGNED = r"""
password={}
password = {}
password: {}
Password: {}
PASSWORD={}
"password": "{}"
'password': '{}'
'password': b'{}'
{{\"password\": \"{}\"}}
"{{\\\"password\\\": \\\"{}\\\"}}"
password='{} with spaces'
password="a\"b{}"
"password":"{}"
password => {}
'password' => '{}',
:password => "{}"
password := "{}"
password -> {}
password is {}
the password is '{}'
Your password is: {}
password was {}
password set to {}
<password>{}</password>
<db:password>{}</db:password>
<password type="text">{}</password>
<add key="password" value="{}"/>
<property name="password" value="{}" />
<entry key="db.password">{}</entry>
--password {}
--password={}
--password '{}'
--db-password {}
--token {}
--api-key={}
mysql -uroot -p{} app
mysqldump -u root -p'{}' app
sshpass -p {} ssh u@h
redis-cli -h cache -a {} ping
docker login -u u -p {} registry.example.com
curl -u user:{} https://x.example.com
curl -u 'user:{}' https://x.example.com
curl --user user:{} https://x.example.com
curl --proxy-user user:{} https://x.example.com
PGPASSWORD={} psql -h db
MYSQL_PWD={} mysql
export API_TOKEN={}
export API_TOKEN="{}"
set SECRET_KEY={}
$env:SECRET_KEY = "{}"
ENV SECRET_KEY={}
ARG NPM_TOKEN={}
ALTER USER app WITH PASSWORD '{}'
CREATE USER app IDENTIFIED BY '{}'
SET PASSWORD = '{}'
machine api.example.com login u password {}
spring.datasource.password={}
spring.datasource.password: {}
SECRET_KEY = '{}'
SECRET_KEY_BASE={}
AWS_SECRET_ACCESS_KEY={}
aws_secret_access_key = {}
aws_session_token = {}
"SecretAccessKey": "{}",
"SessionToken": "{}"
"client_secret": "{}"
"refresh_token": "{}"
"private_key_id": "x", "private_key": "{}"
//registry.npmjs.org/:_authToken={}
"auth": "{}"
Config(host='h', password='{}', port=1)
Config(host='h', password=b'{}')
Config(host=h, password={}, port=1)
User[name=bob, password={}]
Settings(api_key=SecretValue('{}'))
namespace(token='{}')
OrderedDict([('password', '{}')])
--data '{{"password":"{}"}}'
-d 'grant_type=password&username=u&password={}'
username=u&password={}&x=1
level=error msg="login failed" password={} user=u
[DEBUG] token={}
auth token: {}
api key: {}
API Key: {}
secret key: {}
access token: {}
Access Token = {}
password | {}
env:
  - name: DB_PASSWORD
    value: {}
stringData:
  password: {}
data:
  api-key: {}
db_password       = "{}"
~ password = "{}" -> "x"
password: !!str {}
apiVersion: v1
passphrase: {}
otp={}
"cvv": "{}"
$config['password'] = '{}';
define('DB_PASSWORD', '{}');
os.environ["API_KEY"] = "{}"
process.env.API_KEY = "{}"
setProperty("password", "{}")
password=&quot;{}&quot;
&quot;password&quot;: &quot;{}&quot;
webhook_secret: {}
encryption_key: {}
JWT_SECRET={}
x_functions_key={}
"accessToken": "{}"
idToken={}
csrf_token={}
session_token={}
bot_token: {}
"""


def templates(block: str) -> list[str]:
    """Return the templates of a block; an indented line continues the one before."""
    found: list[str] = []
    for line in block.splitlines():
        if line.startswith(" ") and found:
            found[-1] += "\n" + line
        elif line.strip():
            found.append(line)
    return [template for template in found if "{}" in template]
