"""Ctrl-C once is remembered, twice ends at once, and afterwards all is as before."""

from __future__ import annotations

import signal

import pytest

from regard.training.signals import StopFlag


def test_the_first_signal_is_only_remembered() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with StopFlag() as stop:
        assert stop.signal is None
        signal.raise_signal(signal.SIGTERM)
        assert (stop.signal, stop.name) == (signal.SIGTERM, "SIGTERM")
    with StopFlag() as stop:
        signal.raise_signal(signal.SIGINT)
        assert (stop.signal, stop.name) == (signal.SIGINT, "Ctrl-C")
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_closed_terminal_stops_unless_nohup_was_used() -> None:
    before = signal.getsignal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
    try:
        with StopFlag() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert (stop.signal, stop.name) == (signal.SIGHUP, "SIGHUP")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with StopFlag() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.signal is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_ctrl_c_ends_at_once() -> None:
    with StopFlag() as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.signal == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
