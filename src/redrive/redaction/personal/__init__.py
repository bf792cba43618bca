# SPDX-License-Identifier: Apache-2.0
"""Personal facts: e-mail addresses, phone numbers, cards, bank accounts and national ids."""
