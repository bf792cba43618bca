# SPDX-License-Identifier: Apache-2.0
"""Find secrets that have no name next to them: on command lines, in blocks of secrets, and in files of passwords and cookies.

`curl -u user:x`, `mysql -px`, `echo x | docker login`: a table lists the commands and where they take a password. `assignments.py`
handles flags that name it (`--password x`). In every pattern the first group is the password, and all quantifiers are bounded. The
patterns match shell syntax and lists of arguments: `-p x`, `-px`, `-p=x`, `'-p', 'x'`. A command is read once, to the end of its
line and at most `COMMAND_MAX` characters.

The names of the children of a `secrets:` block mean nothing, so only values that look like passwords are hidden; names, hosts and
files stay.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.named.names import words_of
from redrive.redaction.named.values import is_expression, is_guarded, is_inert, is_random
from redrive.redaction.named.vocabulary import BLOCK_FACTS, HARMLESS_TAILS
from redrive.redaction.placeholders import Sentinels
from redrive.redaction.places import Place, Places

COMMAND_MAX: Final = 600
"""How far a flag may be from its command."""

# A command ends with its line, unless a backslash continues the line, and where another command follows.
_LINE: Final = rf"(?>(?:[^\n|&;]|(?<=\\)\n|[|&;](?![|&]?[ ])|(?<! )[|&;](?!\Z)){{0,{COMMAND_MAX}}})"
# The dash comes first, so that the search for it runs in C.
_FLAG: Final = re.compile(r"-(?:(?<=[\s\"'(]-)|(?<=[\s\"'(]--))[A-Za-z]")
_WORD: Final = r"""(?:\\{0,3}(?:'[^'\n]{1,256}+'?|"[^"\n]{1,256}+"?)|[^\s'"]{1,256}+)"""
_PART: Final = r"""[^\s'"]{1,256}+"""
_STRING: Final = r"""[^\s'"\\]{1,256}+"""
_NEXT_STRING: Final = r"""\\{0,3}['"],\s?\\{0,3}['"]"""
# Between a flag and its value: a space, an equals sign, or the end of one quoted argument and the start of the next.
_GAP: Final = r"""(?:[ =:]{1,2}|['"],?[ ]?(?=['"]))"""
_LETTERS: Final = "[A-Za-z]{0,7}"
_BEFORE: Final = r"(?<=[\s'\"])"
# The user may be quoted together with the password.
_USER: Final = rf"-{{1,2}}%s{_GAP}?\\{{0,3}}['\"]?[^\s:'\"@/<]{{1,64}}:({_PART})"
_COMMANDS_WITH_LOGIN: Final = (
    r"(?:docker|podman|buildah|helm|oras|az|oc|cf|ibmcloud|nerdctl|crane|skopeo|regctl|heroku|tsm|tabcmd|rancher|npm|argocd|doctl|octo)"
    r"(?=[^\n]{0,40}[ '\"]login(?![\w-]))"
)
_COMMANDS_WITH_P: Final = (
    r"sshpass|mongo\w{0,12}|twine|rabbitmqadmin|cqlsh|cypher-shell|snowsql|beeline|rdesktop|ncftp\w{0,4}|evil-winrm|(?i:psexec)(?:64)?"
    r"|crackmapexec|netexec|nxc|certutil|security(?= (?:unlock|create|set|import))|xmrig|influx"
)


def _flag(letters: str) -> str:
    """Return the pattern of a flag whose value is a separate argument or follows directly."""
    return rf"{_BEFORE}-{letters}(?!(?:assword|ass|assphrase|ort)\b){_GAP}?({_WORD})"


def _separate_value(letters: str) -> str:
    """Return the pattern of a flag whose value is always a separate argument."""
    return rf"{_BEFORE}-{letters}{_GAP}({_WORD})"


_FLAGS: Final[tuple[tuple[str, str, str], ...]] = (
    # A part of every command that has the flag, those commands, and where the password is.
    (
        "curl wget etcdctl jenkins-cli http xh hey",
        r"curl|wget|etcdctl|jenkins-cli(?:\.jar)?|https?|httpie|xh|hey",
        _BEFORE + _USER % "(?:u|U|user|proxy-user|auth|a)",
    ),
    ("ab", "ab", _BEFORE + _USER % "A"),
    ("skopeo", "skopeo", _BEFORE + _USER % "(?:src-|dest-)?creds"),
    ("curl", "curl", rf"{_BEFORE}(?:-E|--cert)[ =]['\"]?[^\s:'\"]{{1,128}}:(?!//)({_PART})"),
    ("mysql mariadb", r"(?:mysql|mariadb)[\w-]{0,24}", rf"{_BEFORE}-p({_WORD})"),
    ("7z rar", r"7z[ar]?|unrar|rar", rf"{_BEFORE}-h?p({_WORD})"),
    (
        (
            "login sshpass mongo twine rabbitmqadmin cqlsh cypher-shell snowsql beeline rdesktop ncftp evil-winrm psexec"
            " PsExec PSEXEC crackmapexec netexec nxc certutil security xmrig influx"
        ),
        f"{_COMMANDS_WITH_LOGIN}|{_COMMANDS_WITH_P}",
        _flag("p"),
    ),
    ("useradd usermod", "useradd|usermod", _separate_value("p")),
    (
        "sql bcp zip ipmitool mosquitto_ ssh-keygen security",
        "sqlcmd|bcp|isql|tsql|zip|unzip|ipmitool|mosquitto_(?:pub|sub|rr)|ssh-keygen|security",
        _flag("P"),
    ),
    ("ssh-keygen", "ssh-keygen", _flag("N")),
    ("ldap vsql", r"ldap\w{1,12}|vsql", _flag("w")),
    ("ldappasswd", "ldappasswd", _flag("s")),
    ("redis-cli", "redis-cli", _separate_value("a")),
    ("openssl gem dotnet", r"openssl|gem(?= push)|dotnet(?= nuget)", _separate_value("k")),
    ("snmp", r"snmp(?:b?walk|b?get(?:next)?|set|bulkwalk|bulkget|trap|table)", _separate_value("[cAX]")),
    ("influx", "influx", _separate_value("t")),
    ("keytool jarsigner", "keytool|jarsigner", rf"{_BEFORE}-(?:src|dest|new)?(?:store|key)pass(?:wd)?[ :=]({_WORD})"),
    ("sendemail sendEmail", "sendemail|sendEmail", _separate_value("xp")),
    ("pdf", "pdftotext|pdftoppm|pdfimages|pdfinfo|pdftohtml", _separate_value("[uo]pw")),
    (
        "smb rpcclient net nmblookup",
        "smbclient|rpcclient|smbget|net|nmblookup|smbcacls|smbmap|smbspool",
        rf"-U{_GAP}?['\"]?[^\s%'\"]{{1,64}}%({_PART})",
    ),
    ("lftp", "lftp", rf"{_BEFORE}-u{_GAP}['\"]?[^\s,'\"]{{1,64}},({_PART})"),
    # `-b` takes the password as the last word; `-n` leaves out the file before the user.
    (
        "passwd",
        "htpasswd|mosquitto_passwd",
        rf"(?<= )-(?={_LETTERS}b)(?:(?!{_LETTERS}n){_LETTERS} \S{{1,128}}|{_LETTERS}) \S{{1,64}} ({_WORD})",
    ),
)  # fmt: skip

_DATABASE_USER: Final = r"(?<=[\s'\"=])[\w.$-]{1,64}/([^\s@/'\"]{1,128})(?=[@\s'\"]|\Z)"

_PLACES: Final[tuple[tuple[str, str, str], ...]] = (
    # A needle, its command, and where the password is on the rest of the line. A needle costs a search in every text, so there
    # are few. It is part of the match, so that no needle elsewhere in a text affects the result.
    ("jdbc:oracle", r"\bjdbc:oracle:", r":[\w.$-]{1,64}/([^\s@/'\"]{1,128})@"),
    ("sql", r"sql(?:plus|ldr)\b", _DATABASE_USER),
    ("pdp", r"\b(?:ex|im)pdp\b", _DATABASE_USER),
    ("IDENTIFIED", r"\bIDENTIFIED\b", rf"\b(?:BY|AS)[ \t]+({_WORD})"),
    ("identified by", r"\bidentified by", rf"\bby[ \t]+('[^'\n]{{1,256}}+'|(?=[A-Za-z_!-]{{0,40}}[0-9]){_PART})"),
    ("machine ", r"\bmachine \S{1,128}\s+login\b", rf"\bpassword\s+({_WORD})"),
    ("rabbitmqctl", r"\brabbitmqctl\b", rf"(?:add_user|change_password|authenticate_user)['\",]{{0,2}} \S{{1,64}} ({_WORD})"),
    ("net use", r"\bnet user?\b", rf"(?:/user:\S{{1,64}} |use [^\n]{{0,16}}\\\\\S{{1,128}} |user (?!/)\S{{1,64}} )(?!/)({_WORD})"),
    ("/p:", r"\b(?:xfreerdp\d?|wfreerdp|mstsc)\b", rf"/p:({_WORD})"),
    ("cf auth ", r"\bcf auth\b", rf"auth \S{{1,64}} ({_WORD})"),
    (
        " config",
        r"\b(?:poetry|composer|npm) config\b",
        rf"(?:http-basic\.\S{{1,64}} \S{{1,64}} |pypi-token\.\S{{1,64}} |_auth(?:Token)?[ =])({_WORD})",
    ),
    (" login ", r"\b(?:cargo|vault) login\b", rf"login (?![-\w]{{1,32}}=)({_WORD})"),
    ("mc alias set", r"\bmc alias set\b", rf"set \S{{1,64}} \S{{1,128}} \S{{1,64}} ({_WORD})"),
    ("from-literal", r"--from-literal\b", rf"literal[ =]['\"]?[\w.-]{{1,64}}=({_WORD})"),
    (
        "SecureString",
        r"\bConvertTo-SecureString\b",
        rf"SecureString (?:-String )?(?![-(]|['\"]?\$)(?:\\{{1,3}}[\"'](?=\w))?({_STRING}|{_WORD})",
    ),
    # The constructor of credentials: the string after the user is the password.
    ("Credential", r"\b\w{0,24}Credentials?\((?=\\{0,3}[\"'])", rf"{_NEXT_STRING}({_STRING})"),
    ("schtasks", r"\bschtasks\b", rf"/rp ({_WORD})"),
    ("mysqli", r"\b(?:new mysqli|mysqli_connect)\(", rf"{_NEXT_STRING}{_STRING}{_NEXT_STRING}({_STRING})"),
    ("DirectoryEntry", r"\bDirectoryEntry\(", rf"{_NEXT_STRING}{_STRING}{_NEXT_STRING}({_STRING})"),
    ("-server ", r"\b(?:snmp|tacacs|radius)-server\b", rf"-server (?:community|key)(?: [07])? ({_WORD})"),
)  # fmt: skip

_PIPED: Final = rf"\b(?:echo|printf)(?: -n)?(?: ['\"]?%s(?:\\n)?['\"]?)? ({_WORD}) ?\| ?(?:sudo )?"
_PIPED_FOR_USER: Final = rf"\b(?:echo|printf)(?: -n)? ['\"]?[\w.-]{{1,64}}:({_PART})['\"]? ?\| ?(?:sudo )?"

_PIPES: Final[tuple[tuple[str, str], ...]] = (
    # A needle, and the pipe or here-string with the password in it.
    ("stdin", rf"{_PIPED}[^\n|]{{0,120}}?stdin\b"),
    ("stdin", rf"--password-stdin[^\n<|]{{0,120}}<<<[ ]?({_WORD})"),
    ("with-token", rf"{_PIPED}[^\n|]{{0,120}}?--with-token\b"),
    ("with-token", rf"--with-token[ ]?<<<[ ]?({_WORD})"),
    ("sudo -S", rf"{_PIPED}(?:-S|(?<=\| )sudo -S|(?<=sudo )-S)\b"),
    ("kinit", rf"{_PIPED}kinit\b"),
    ("kinit", rf"\bkinit[^\n<|]{{0,120}}<<<[ ]?({_WORD})"),
    ("chpasswd", rf"{_PIPED_FOR_USER}chpasswd\b"),
    ("chpasswd", rf"\bchpasswd[ ]?<<<[ ]?['\"]?[\w.-]{{1,64}}:({_PART})"),
    ("smbpasswd", rf"\bsmbpasswd[^\n<|]{{0,120}}<<<[ ]?({_WORD})"),
)


def _is_password(found: re.Match[str]) -> bool:
    word = found[1].strip("'\"\\")
    return not (is_inert(word) or word.isdigit() or word.startswith("-"))


# The end of a longer word is not a command.
_BY_FLAG: Final = Places(
    Place(
        needle,
        "password",
        re.compile(flag),
        re.compile(rf"(?<![\w-])(?:{commands})(?=[ \t\"']){_LINE}"),
        _is_password,
    )
    for needles, commands, flag in _FLAGS
    for needle in needles.split()
)
_BY_NEEDLE: Final = Places(
    # The login of a `.netrc` may be on the next line.
    Place(
        needle, "password", re.compile(place), re.compile(command + _LINE), _is_password, needle == "machine "
    )
    for needle, command, place in _PLACES
)
_BY_PIPE: Final = Places(
    Place(needle, "password", re.compile(pattern), None, _is_password) for needle, pattern in _PIPES
)


def redact_commands(text: str, sentinels: Sentinels) -> str:
    """Replace the passwords that well-known commands take without naming them."""
    if _FLAG.search(text):
        text = _BY_FLAG.redact(text, sentinels)
    text = _BY_NEEDLE.redact(text, sentinels)
    return _BY_PIPE.redact(text, sentinels) if "|" in text or "<<<" in text else text


_BLOCK_NAMES: Final = r"(?:[Ss]ecrets|[Cc]redentials|[Pp]asswords)"
_YAML: Final = (
    rf"^([ \t]{{0,40}})[\"']?[\w.-]{{0,40}}{_BLOCK_NAMES}[\"']?:[ \t]{{0,8}}\r?\n"
    r"(?>(?:\1[ \t]{1,40}\S[^\n]*+(?:\n|\Z))+)"
)
_YAML_CHILD: Final = r"^[ \t-]+[\"']?([\w.-]{1,64})[\"']?:[ \t]+[\"']?([^\s\"']{6,256})[\"']?[ \t]*$"
_JSON: Final = rf"[\"'][\w.-]{{0,40}}{_BLOCK_NAMES}[\"']\s{{0,8}}:\s{{0,8}}\{{([^{{}}]{{1,4096}}+)\}}"
_JSON_CHILD: Final = r"[\"']([\w.-]{1,64})[\"']\s{0,8}:\s{0,8}[\"']([^\s\"']{6,256})[\"']"
_BLOCK: Final = re.compile(f"{_YAML}|{_JSON}", re.MULTILINE)
_CHILD: Final = re.compile(f"{_YAML_CHILD}|{_JSON_CHILD}", re.MULTILINE)
# Names of hosts, zones and objects are words and numbers in lower case, joined by single separators.
_JOINED: Final = re.compile(r"[a-z0-9]+(?:[-./:@][a-z0-9]+)+|/.*|\W*")

# Host, port, database, user and password; an asterisk means any.
_PGPASS: Final = re.compile(
    r"(?:^|(?<=[\"']))(?=[^\s:]{1,128}:(?:[0-9]{2,5}|\*):)[\w.*-]{1,128}:(?:[0-9]{2,5}|\*):[\w.*-]{1,64}:[\w.*@-]{1,64}:"
    r"((?:[^\s:\"'\\]|\\.){1,128})(?=[ \t]*$|[\"'])",
    re.MULTILINE,
)

# The cookie file of browsers and curl: domain, subdomains, path, secure, expiry, name and value, separated by tabs.
_COOKIES: Final = re.compile(
    r"\t(?:TRUE|FALSE)\t/[^\t\n]{0,256}\t(?:TRUE|FALSE)\t[0-9]{1,20}\t[^\t\n]{1,128}\t([^\t\n]{1,4096}+)"
)


def _is_child(child: re.Match[str]) -> bool:
    """Return whether the child of a block is a secret, not an ordinary fact."""
    parts, value = words_of(child[1] or child[3]), child[2] or child[4]
    if parts and (parts[-1] in HARMLESS_TAILS or parts[-1] in BLOCK_FACTS):
        return False
    if is_inert(value) or _JOINED.fullmatch(value) or is_expression(value):
        return False
    return is_random(value) or is_guarded(value)


def _is_literal(found: re.Match[str]) -> bool:
    return not is_inert(found[1])


def _is_guarded(found: re.Match[str]) -> bool:
    return is_guarded(found[1])


BLOCKS: Final = Places(
    (
        *(
            Place(holder, "secret", _CHILD, _BLOCK, _is_child, is_far=True)
            for holder in ("ecrets", "redentials", "asswords")
        ),
        *(Place(flag, "cookie", _COOKIES, None, _is_literal) for flag in ("\tTRUE\t", "\tFALSE\t")),
        Place(".pgpass", "password", _PGPASS, None, _is_literal, is_far=True),
        *(Place(port, "password", _PGPASS, None, _is_guarded) for port in (":5432:", ":*:")),
    )
)
"""Blocks and files of secrets."""
