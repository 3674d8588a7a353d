"""What coordinator and nodes agree on beyond the messages: the names of calls and how long everybody waits."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC = "consentroid"
STATUS = "consentroid.status"  # the command by which an administrator follows a run
POLL = 2.0  # seconds until a node that is not ready gives a sign of life
LONGEST_SOLVE = 3600.0  # a node's own limit on one request, whatever the coordinator allows

ASK, COLLECT = "ask", "collect"
DONE, WORKING, WAITING, UNKNOWN, REFUSED = "done", "working", "waiting", "unknown", "refused"


@dataclass(frozen=True)
class Limits:
    """Seconds; every wait of the coordinator is made of these."""

    call: float = POLL + 8.0  # one call; a node that works answers within POLL
    silence: float = 30.0  # without a sign of life a node is lost
    slack: float = 60.0  # beyond the budget of a request
    start: float = 60.0  # until every node has joined the job
    approval: float = 24 * 3600.0  # for a node's owner to approve a job by hand
    longest: float = LONGEST_SOLVE  # for a request that names no budget
    pace: float = 0.0  # least time between two exchanges; the demonstration is slowed down to be followed by eye
