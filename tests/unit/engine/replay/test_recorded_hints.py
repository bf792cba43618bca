# SPDX-License-Identifier: Apache-2.0
"""What an application says about its own codes is kept with its pipeline, for whoever acts without the code at hand."""

from __future__ import annotations

from redrive import CodeSet, OwnCode, Pipeline, ReplayRules, stage
from redrive.core.taxonomy import CODES
from redrive.engine.replay.rules import record_rules, recorded, rules_of
from redrive.ops.jobs.next_steps import Hints
from redrive.store.protocol import Store
from tests.embedded import change_rows
from tests.unit.build import rows

OWN = CodeSet(
    "shop",
    [
        OwnCode("GONE", ["not_found"], stages=["pay"], hint="Ask the bank."),
        OwnCode("GONE", ["not_found"], hint="Ask the warehouse."),
        OwnCode("AUTH_INVALID", ["AUTH_INVALID"], hint="Renew our key."),
        OwnCode("QUIET", ["network"]),
    ],
    otherwise=OwnCode("REST", hint="Call us."),
)


def shop(codes: CodeSet | None, rules: ReplayRules | None = None) -> Pipeline:
    return Pipeline("shop", [stage(name="pay")(lambda number: number)], codes=codes, replay=rules)  # type: ignore[misc]  # a lambda has no types to infer


def test_the_hint_of_an_own_code_is_known_from_the_store_alone(store: Store) -> None:
    record_rules(store, [shop(OWN)])

    hints = Hints(store)
    assert hints.about("shop", "pay", "GONE", "not_found") == "Ask the bank."
    assert hints.about("shop", "pack", "GONE", "not_found") == "Ask the warehouse."
    assert hints.about("shop", "pay", "AUTH_INVALID", "auth") == "Renew our key."
    assert hints.about("shop", "pay", "REST", "bug") == "Call us."


def test_what_no_application_speaks_of_has_the_hint_of_the_taxonomy(store: Store) -> None:
    record_rules(store, [shop(OWN)])

    hints = Hints(store)
    assert hints.about("elsewhere", "pay", "AUTH_INVALID", "auth") == CODES["AUTH_INVALID"].hint
    assert "the dependency works again" in hints.about("shop", "pay", "QUIET", "network")


def test_hints_change_with_the_code_and_leave_the_rules_alone(store: Store) -> None:
    relaxed = ReplayRules(evidence="optional")
    record_rules(store, [shop(OWN, relaxed)])
    first = rows(store, "rules", "replay_rules")
    record_rules(store, [shop(OWN, relaxed)])
    assert rows(store, "rules", "replay_rules") == first

    record_rules(store, [shop(None, relaxed)])
    assert recorded(store, "shop").hints == ()
    assert rules_of(store, "shop") == relaxed


def test_rules_of_an_earlier_version_have_no_hints(store: Store) -> None:
    change_rows(store, "INSERT INTO replay_rules VALUES ('shop', ?)", (b'{"evidence":"optional"}',))

    assert recorded(store, "shop").hints == ()
    assert rules_of(store, "shop").evidence == "optional"
