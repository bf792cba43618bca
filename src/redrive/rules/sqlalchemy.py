# SPDX-License-Identifier: Apache-2.0
"""SQLAlchemy: a DBAPIError has the driver's error in `orig`, whose own rules decide.

SQLAlchemy's asyncpg driver raises errors of its own that copy the SQLSTATE; MySQL drivers use a number. For an unknown driver,
SQLAlchemy's class decides, and whether it invalidated the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleFunction, RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, package_of
from redrive.rules.shared.sqlstate import verdict_in
from redrive.rules.shared.wrapped import verdict_of

_DEPTH_MAX: Final = 8
_MYSQL_DRIVERS: Final = frozenset({"MySQLdb", "aiomysql", "asyncmy", "mariadb", "mysql", "pymysql"})
_MYSQL: Final[dict[Code, tuple[int, ...]]] = {
    taxonomy.CONFLICT: (1020, 1062, 1205, 1213, 1586, 3572),
    taxonomy.SCHEMA_INVALID: (1048, 1216, 1217, 1264, 1265, 1292, 1364, 1366, 1406, 1451, 1452, 3819, 4025),
    taxonomy.BUG_CODE: (1054, 1064, 1146, 1305),
    taxonomy.AUTH_INVALID: (1045, 1698),
    taxonomy.AUTH_DENIED: (1044, 1142, 1143, 1227, 1370),
    taxonomy.CONFIG_INVALID: (1049,),
    taxonomy.RESOURCE_EXHAUSTED: (1040, 1203, 1226),
    taxonomy.DISK_FULL: (1021, 1114),
    taxonomy.REQUEST_TOO_LARGE: (1118, 1153),
    taxonomy.LOCAL_TIMEOUT: (1317, 1969, 3024),
    taxonomy.NETWORK_UNAVAILABLE: (1053, 1290, 1836),
    taxonomy.NETWORK_REFUSED: (2002, 2003),
    taxonomy.NETWORK_DNS: (2005,),
    taxonomy.NETWORK_RESET: (2006, 2013, 2055, 4031),
}
_MYSQL_NUMBERS: Final = {number: code for code, numbers in _MYSQL.items() for number in numbers}


def _driver_or(fallback: Code) -> RuleFunction:
    def read(exc: BaseException, now: float) -> Verdict | Code:
        for inner in _inside(exc):
            answer = verdict_in(inner) or _mysql(inner) or verdict_of(inner, now)
            if answer is not None:
                return answer
        return taxonomy.NETWORK_RESET if attribute(exc, "connection_invalidated") is True else fallback

    return read


def _inside(exc: BaseException) -> Iterator[BaseException]:
    """Yield the exception itself (an emulated driver's error has the SQLSTATE), then the exceptions nested in it."""
    current: object = exc
    for _ in range(_DEPTH_MAX):
        if not isinstance(current, BaseException):
            return
        yield current
        current = attribute(current, "orig") or current.__cause__


def _mysql(exc: BaseException) -> Verdict | None:
    if package_of(type(exc)) not in _MYSQL_DRIVERS:
        return None
    number = exc.args[0] if exc.args else None
    code = _MYSQL_NUMBERS.get(number) if isinstance(number, int) else None
    return None if code is None else Verdict(code=code, provider_code=str(number))


RULES: Final[RuleTable] = {
    # PEP 249: not necessarily under the control of the programmer. Retryable unless the driver's error is more specific.
    "OperationalError": _driver_or(taxonomy.UPSTREAM_ERROR),
    "InternalError": _driver_or(taxonomy.UPSTREAM_ERROR),
    "IntegrityError": _driver_or(taxonomy.SCHEMA_INVALID),
    "DataError": _driver_or(taxonomy.SCHEMA_INVALID),
    "DBAPIError": _driver_or(taxonomy.BUG_CODE),
    "StatementError": _driver_or(taxonomy.BUG_CODE),
    "EmulatedDBAPIException": _driver_or(taxonomy.BUG_CODE),
    "TimeoutError": taxonomy.RESOURCE_EXHAUSTED,  # of the connection pool
    "DisconnectionError": taxonomy.NETWORK_RESET,
    # The session failed before and was used again without a rollback.
    "PendingRollbackError": taxonomy.BUG_CODE,
    "StaleDataError": taxonomy.CONFLICT,
    "NoResultFound": taxonomy.NOT_FOUND,
    "ObjectDeletedError": taxonomy.NOT_FOUND,
    "NoSuchModuleError": taxonomy.CONFIG_INVALID,
    "NoDBAPILoaded": taxonomy.CONFIG_INVALID,
    "SQLAlchemyError": taxonomy.BUG_CODE,
}
