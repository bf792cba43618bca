# SPDX-License-Identifier: Apache-2.0
"""A table of well-known commands and where they take a password.

Only the table: `commands.py` searches for them. In every pattern the first group is the password. All quantifiers are bounded.
The patterns match shell syntax and lists of arguments: `-p x`, `-px`, `-p=x`, `'-p', 'x'`.
"""

from __future__ import annotations

from typing import Final

_WORD: Final = r"""(?:'[^'\n]{1,256}+'?|"[^"\n]{1,256}+"?|[^\s'"]{1,256}+)"""
_PART: Final = r"""[^\s'"]{1,256}+"""
# Between a flag and its value: a space, an equals sign, or the end of one quoted argument and the start of the next.
_GAP: Final = r"""(?:[ =:]{1,2}|['"],?[ ]?(?=['"]))"""
_LETTERS: Final = "[A-Za-z]{0,7}"
_ANY_LETTER: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BEFORE: Final = r"(?<=[\s'\"])"
# The user may be quoted together with the password.
_USER: Final = rf"-{{1,2}}%s{_GAP}?['\"]?[^\s:'\"@/<]{{1,64}}:({_PART})"
_COMMANDS_WITH_LOGIN: Final = (
    r"(?:docker|podman|buildah|helm|oras|az|oc|cf|ibmcloud|nerdctl|crane|skopeo|regctl|heroku|tsm|tabcmd|rancher|npm|argocd|doctl|octo)"
    r"(?=[^\n]{0,40}[ '\"]login(?![\w-]))"
)
_COMMANDS_WITH_P: Final = (
    r"sshpass|mongo\w{0,12}|twine|rabbitmqadmin|cqlsh|cypher-shell|snowsql|beeline|rdesktop|ncftp\w{0,4}|evil-winrm|psexec"
    r"|crackmapexec|netexec|nxc|certutil|security(?= (?:unlock|create|set|import))|xmrig|influx"
)


def _flag(letters: str) -> str:
    """Return the pattern of a flag whose value is a separate argument or follows directly."""
    return rf"{_BEFORE}-{letters}(?!(?:assword|ass|assphrase|ort)\b){_GAP}?({_WORD})"


def _separate_value(letters: str) -> str:
    """Return the pattern of a flag whose value is always a separate argument."""
    return rf"{_BEFORE}-{letters}{_GAP}({_WORD})"


FLAGS: Final[tuple[tuple[str, str, str, str], ...]] = (
    # The letters a flag may start with, a part of every command that has it, those commands, and where the password is.
    # Every flag of a row starts with one of its letters, so that no flag elsewhere in a text affects whether this one is found.
    (
        "uUpa",
        "curl wget etcdctl jenkins-cli http xh hey",
        r"curl|wget|etcdctl|jenkins-cli(?:\.jar)?|https?|httpie|xh|hey",
        _BEFORE + _USER % "(?:u|U|user|proxy-user|auth|a)",
    ),
    ("A", "ab", "ab", _BEFORE + _USER % "A"),
    ("sdc", "skopeo", "skopeo", _BEFORE + _USER % "(?:src-|dest-)?creds"),
    ("E-c", "curl", "curl", rf"{_BEFORE}(?:-E|--cert)[ =]['\"]?[^\s:'\"]{{1,128}}:(?!//)({_PART})"),
    ("p", "mysql mariadb", r"(?:mysql|mariadb)[\w-]{0,24}", rf"{_BEFORE}-p({_WORD})"),
    ("hp", "7z rar", r"7z[ar]?|unrar|rar", rf"{_BEFORE}-h?p({_WORD})"),
    ("h", "rar", "rar", rf"{_BEFORE}-hp({_WORD})"),
    (
        "p",
        (
            "login sshpass mongo twine rabbitmqadmin cqlsh cypher-shell snowsql beeline rdesktop ncftp evil-winrm psexec"
            " crackmapexec netexec nxc certutil security xmrig influx"
        ),
        f"{_COMMANDS_WITH_LOGIN}|{_COMMANDS_WITH_P}",
        _flag("p"),
    ),
    ("p", "useradd usermod", "useradd|usermod", _separate_value("p")),
    (
        "P",
        "sql bcp zip ipmitool mosquitto_ ssh-keygen security",
        "sqlcmd|bcp|isql|tsql|zip|unzip|ipmitool|mosquitto_(?:pub|sub|rr)|ssh-keygen|security",
        _flag("P"),
    ),
    ("N", "ssh-keygen", "ssh-keygen", _flag("N")),
    ("w", "ldap vsql", r"ldap\w{1,12}|vsql", _flag("w")),
    ("s", "ldappasswd", "ldappasswd", _flag("s")),
    ("a", "redis-cli", "redis-cli", _separate_value("a")),
    ("k", "openssl", "openssl", _separate_value("k")),
    ("k", "gem dotnet", r"gem(?= push)|dotnet(?= nuget)", _separate_value("k")),
    ("cAX", "snmp", r"snmp(?:b?walk|b?get(?:next)?|set|bulkwalk|bulkget|trap|table)", _separate_value("[cAX]")),
    ("t", "influx", "influx", _separate_value("t")),
    ("sdnk", "keytool jarsigner", "keytool|jarsigner", rf"{_BEFORE}-(?:src|dest|new)?(?:store|key)pass(?:wd)?[ :=]({_WORD})"),
    ("x", "sendemail sendEmail", "sendemail|sendEmail", _separate_value("xp")),
    ("uo", "pdf", "pdftotext|pdftoppm|pdfimages|pdfinfo|pdftohtml", _separate_value("[uo]pw")),
    (
        "U",
        "smb rpcclient net nmblookup",
        "smbclient|rpcclient|smbget|net|nmblookup|smbcacls|smbmap|smbspool",
        rf"-U{_GAP}?['\"]?[^\s%'\"]{{1,64}}%({_PART})",
    ),
    ("u", "lftp", "lftp", rf"{_BEFORE}-u{_GAP}['\"]?[^\s,'\"]{{1,64}},({_PART})"),
    # `-b` takes the password as the last word; `-n` leaves out the file before the user.
    (_ANY_LETTER, "passwd", "htpasswd|mosquitto_passwd", rf"(?<= )-(?={_LETTERS}b)(?={_LETTERS}n){_LETTERS} \S{{1,64}} ({_WORD})"),
    (
        _ANY_LETTER,
        "passwd",
        "htpasswd|mosquitto_passwd",
        rf"(?<= )-(?={_LETTERS}b)(?!{_LETTERS}n){_LETTERS} \S{{1,128}} \S{{1,64}} ({_WORD})",
    ),
)  # fmt: skip

_DATABASE_USER: Final = r"(?<=[\s'\"=])[\w.$-]{1,64}/([^\s@/'\"]{1,128})(?=[@\s'\"]|\Z)"

PLACES: Final[tuple[tuple[str, str, str], ...]] = (
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
    ("SecureString", r"\bConvertTo-SecureString\b", rf"SecureString (?:-String )?(?![-(]|['\"]?\$)({_WORD})"),
    ("-server ", r"\b(?:snmp|tacacs|radius)-server\b", rf"-server (?:community|key)(?: [07])? ({_WORD})"),
)  # fmt: skip

_PIPED: Final = rf"\b(?:echo|printf)(?: -n)?(?: ['\"]?%s(?:\\n)?['\"]?)? ({_WORD}) ?\| ?(?:sudo )?"
_PIPED_FOR_USER: Final = rf"\b(?:echo|printf)(?: -n)? ['\"]?[\w.-]{{1,64}}:({_PART})['\"]? ?\| ?(?:sudo )?"

PIPES: Final[tuple[tuple[str, str], ...]] = (
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
