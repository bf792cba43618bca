# SPDX-License-Identifier: Apache-2.0
"""A second corpus, written as a stranger would: odd carriers and spellings. `{}` is the secret."""

from __future__ import annotations

CERTAIN = r"""
docker run --rm -e POSTGRES_PASSWORD={} -p 5432:5432 postgres:16
docker run --env=API_TOKEN={} app
kubectl create secret generic db --from-literal=password={}
helm upgrade app ./chart --set db.password={},replicas=2
terraform apply -var="db_password={}"
TF_VAR_db_password={} terraform plan
ansible-playbook site.yml -e "ansible_password={}"
ansible_become_pass={}
::add-mask::token={}
##[debug]Evaluating: secrets.TOKEN token={}
Run echo "PASSWORD={}" >> $GITHUB_ENV
+ export SECRET={}
+ PASSWORD={}
$ export PASSWORD="{}"
[2024-05-01 12:00:00] production.ERROR: login {{"email":"x","password":"{}"}}
INFO  c.e.App - Credentials[user=app, password={}]
DEBUG o.s.jdbc - url=jdbc:h2:mem, username=sa, password={}
java.sql.SQLException: Access denied (using password: {})
<connectionString>Server=db;Password={};Trusted=no</connectionString>
<bean><property name="password"><value>x</value></property></bean> password={}
<wsse:Password Type="PasswordText">{}</wsse:Password>
<ns2:apiKey>{}</ns2:apiKey>
['password' => '{}', 'user' => 'app']
array ( 'password' => '{}', )
stdClass Object ( [password] => {} [user] => app )
[password] => {}
#<User id: 1, password: "{}">
{{:password=>"{}", :user=>"app"}}
%{{password: "{}"}}
Parameters: {{"user"=>"u", "password"=>"{}"}}
map[password:{} user:app]
&{{User:app Password:{} Port:5432}}
{{User:app,Password:{},Port:5432}}
Config {{ user: "app", password: "{}", port: 5432 }}
Config {{ password: Some("{}") }}
password: Some("{}")
User(name=bob, password={}, age=3)
Login{{user='bob', password='{}'}}
password=b"{}"
password = u'{}'
password = r"{}"
kwargs={{'password': '{}', 'retries': 3}}
Namespace(user='u', password='{}')
("password", "{}")
{{"key": "password", "value": "{}"}}
{{"Key":"DbPassword","Value":"{}"}}
{{"ParameterKey": "DBPassword", "ParameterValue": "{}"}}
- {{name: DB_PASSWORD, value: "{}"}}
{{"name":"api_token","type":"string","value":"{}"}}
password:    {}
"password"   :   "{}"
password:"{}"
password: '{}'
PASSWORD : {}
Passwort: {}
passwd={}
pwd={}
user_pwd={}
DB_PASS={}
smtp_pass: {}
rootpw --plaintext password={}
admin-password={}
adminPassword={}
newPassword={}
old_password={}
password_confirmation={}
passwordHash={}
password1={}
confirmPassword: "{}"
api.secret={}
app.secret-key: {}
my.api-key={}
apiSecret={}
consumer_secret={}
CLIENT_SECRET: "{}"
oauth_token_secret="{}"
oauth_token="{}"
GITHUB_TOKEN={}
NPM_TOKEN: {}
SLACK_BOT_TOKEN={}
x-access-token: {}
X-CSRF-Token: {}
X-Goog-Api-Key: {}
X-Shopify-Access-Token: {}
Api-Token: {}
accesskey={}
secretkey={}
secret_access_key: {}
storage_account_key = "{}"
credentials={}
credential: {}
creds="{}"
user=bob pass={}
login bob, password {}!
login with password '{}'
using password "{}"
his password was changed to {}
the new password is {}
my secret is "{}"
token is {}
--secret={}
--client-secret {}
--access-token "{}"
-password {}
/password:{}
net use z: \\srv\share /user:app password={}
psql "host=db user=app password={} sslmode=require"
dsn: host=db user=app password={} dbname=app
dsn="user:x password={}"
sqlcmd -U sa -P x --password {}
mongosh --username u --password {} --authenticationDatabase admin
redis-cli --pass {} ping
openssl enc -k x -pass pass:{}
-passin pass:{}
gpg --passphrase {} --decrypt f
{{"auth": {{"username": "u", "password": "{}"}}}}
{{"connections":[{{"id":1,"password":"{}"}}]}}
"{{\"a\":\"{{\\\"password\\\":\\\"{}\\\"}}\"}}"
payload="{{\"user\":\"x\",\"password\":\"{}\"}}"
body=b'{{"password": "{}"}}'
body: b"{{'password': '{}'}}"
data: '{{"password":"{}"}}'
b'user=u&password={}&x=1'
user%3Du%26password%3D{}%26x%3D1
{{"password"\u003a"{}"}}; password={}
ValueError: invalid literal for int() with base 10: 'password={}'
ConfigError("token={} is not allowed here")
Error: request to https://h/p?token={} failed, reason: timeout
urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='h', port=443): Max retries exceeded with url: /v1?api_key={} (Caused by x)
requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://h.example.com/v1?access_token={}
GET /v1/x?token={} HTTP/1.1" 200 -
10.0.0.1 - - [01/May/2024:12:00:00 +0000] "GET /cb?client_secret={}&x=1 HTTP/1.1" 302 0
Location: https://app.example.com/#id_token={}&state=1
Referer: https://app.example.com/reset?reset_token={}
wget --password={} https://x.example.com
svn co --username u --password {} https://svn.example.com/r
az login --service-principal -u app -p {} --tenant t
docker login registry.example.com -u u --password {}
helm registry login -u u -p {} r.example.com
curl -s -u "bob:{}" https://x.example.com/a
curl -d "client_secret={}" https://x.example.com/token
curl -X POST -d '{{"token": "{}"}}' https://x.example.com
curl 'https://x.example.com/?apikey={}'
requests.get(url, auth=('user', 'x'), headers={{'X-Api-Key': '{}'}})
aiohttp.BasicAuth(login='u', password='{}', encoding='latin1')
create_engine(URL.create('postgresql', password='{}'))
Redis<ConnectionPool<Connection<host=h,port=1,password={}>>>
<Config password='{}' user='x'>
<Token: {}> token={}
password → {}
jdbc:oracle:thin:scott/{}@db.example.com:1521:orcl
sqlplus scott/{}@db
DRIVER=x;UID=u;PWD={{{}}};
"""

RANDOM = r"""
Incorrect API key provided: {}.
token {} was rejected
.dockerconfigjson: {}
"auth": "{}"
_auth={}
key={}
"key": "{}"
signing key = {}
salt={}
nonce: {}
signature={}
"signature": "{}"
session={}
session_id={}
"sessionId": "{}"
X-Signature: {}
X-Hub-Signature-256: sha256={} signature={}
hmac={}
tokens: {}
token_github={}
my_key={}
datadog_key: {}
SIGNING_KEY={}
https://h.example.com/?sig={}
https://h.example.com/?key={}&x=1
https://h.example.com/?code={}&state=s
https://h.example.com/?auth={}
Authorization: Custom {}
authorization=Bearer {}
Sending header 'Authorization' = 'Bearer {}'
{{"authorization":["Bearer {}"]}}
{{"Authorization": ["Bearer {}"]}}
auth_header="Bearer {}"
Bearer {}
using bearer {} for call
token: Bearer {}
"""
