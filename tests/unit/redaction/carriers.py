# SPDX-License-Identifier: Apache-2.0
"""The texts in which secrets turn up: each carrier takes a secret, or a name and a secret, and returns a text."""

from __future__ import annotations

import json
from collections.abc import Callable

BARE: dict[str, Callable[[str], str]] = {
    "alone": lambda secret: secret,
    "log line": lambda secret: f"2026-01-02T03:04:05Z ERROR upstream refused {secret} (attempt 3)",
    "traceback": lambda secret: (
        f'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g("{secret}")\nValueError: bad {secret}\n'
    ),
    "json": lambda secret: json.dumps({"a": 1, "note": secret, "b": [True]}),
    "repr": lambda secret: f"Client(base='x', thing={secret!r}, retries=3)",
    "bytes repr": lambda secret: repr(f"line\n{secret}\nline".encode()),
    "query": lambda secret: f"GET https://api.example.com/v1/things?page=2&thing={secret}&size=10 500",
    "parenthesis": lambda secret: f"rejected ({secret}), giving up",
    "logfmt": lambda secret: f'level=error thing={secret} msg="no luck"',
    "json in json": lambda secret: json.dumps({"body": json.dumps({"thing": secret})}),
    "csv": lambda secret: f"1,two,{secret},4",
    "header": lambda secret: f"> X-Thing: {secret}\r\n> Host: example.com\r\n",
    "path end": lambda secret: f"DELETE /v1/things/{secret} 404",
}

NAMED: dict[str, Callable[[str, str], str]] = {
    "json": lambda name, secret: json.dumps({"user": "u1", name: secret, "retries": 3}),
    "json in json": lambda name, secret: json.dumps({"body": json.dumps({name: secret, "a": 1})}),
    "json deep": lambda name, secret: json.dumps(json.dumps(json.dumps({name: secret, "a": 1}))),
    "repr": lambda name, secret: repr({"user": "u1", name: secret, "retries": 3}),
    "bytes repr": lambda name, secret: repr({name.encode(): secret.encode()}),
    "shell": lambda name, secret: f"export {name}={secret}\nrun --fast",
    "shell quoted": lambda name, secret: f"{name}='{secret}' ./run",
    "docker": lambda name, secret: f"docker run -e {name}={secret} -p 80:80 image:1.2",
    "yaml": lambda name, secret: f"service:\n  {name}: {secret}\n  port: 5432\n",
    "yaml quoted": lambda name, secret: f'service:\n  {name}: "{secret}"\n  port: 5432\n',
    "yaml list": lambda name, secret: f"env:\n- name: {name}\n  value: {secret}\n- name: X\n  value: y\n",
    "toml": lambda name, secret: f'[db]\n{name} = "{secret}"\nport = 1\n',
    "ini": lambda name, secret: f"[db]\nhost = a\n{name} = {secret}\n",
    "properties": lambda name, secret: f"spring.datasource.{name}={secret}\nspring.x=y\n",
    "kwargs": lambda name, secret: (
        f"connect(host='h', {name.replace('-', '_').replace('.', '_')}='{secret}', port=1)"
    ),
    "flag": lambda name, secret: f"./run --{name} {secret} --verbose",
    "flag equals": lambda name, secret: f"./run --{name}={secret} --verbose",
    "xml": lambda name, secret: f"<config><{name}>{secret}</{name}><port>1</port></config>",
    "php": lambda name, secret: f"array('user' => 'u', '{name}' => '{secret}')",
    "terraform": lambda name, secret: f'  + {name} = "{secret}"\n  + port = 1',
    "log": lambda name, secret: f"2026-01-02 03:04:05,123 INFO settings: {name}={secret}, port=5432",
    "logfmt": lambda name, secret: f"level=info {name}={secret} port=5432",
    "form": lambda name, secret: f"user=u&{name}={secret}&remember=1",
    "url": lambda name, secret: f"https://h.example.com/cb?state=1&{name}={secret}&x=2",
    "header": lambda name, secret: f"{name}: {secret}\r\nHost: h.example.com\r\n",
    "pairs": lambda name, secret: repr([("Host", "h"), (name, secret)]),
    "connection string": lambda name, secret: f"Server=h;Uid=u;{name}={secret};Encrypt=yes",
    "k8s json": lambda name, secret: json.dumps({"env": [{"name": name, "value": secret}]}),
}
