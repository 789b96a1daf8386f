"""What has to be set together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.settings import Settings

_TOGETHER = (("bpmn_username", "bpmn_password"), ("servicenow_client_id", "servicenow_client_secret"))
# The second is of no use without the first.
_NEEDED = (
    ("slack_bot_token", "slack_signing_secret"),
    ("bpmn_url", "bpmn_callback_url"),
    ("model_api_key", "model_url"),
    ("sqs_queue_url", "sqs_dlq_url"),
    ("s3_bucket", "s3_object_lock_mode"),
)


def pair_problems(settings: Settings) -> list[str]:
    """Every setting that is missing because another one is there, as sentences without a full stop."""

    def given(name: str) -> bool:
        return getattr(settings, name) not in (None, "")

    pairs = _TOGETHER if given("servicenow_url") else _TOGETHER[:1]
    halves = [pair for pair in pairs if given(pair[0]) != given(pair[1])]
    problems = [f"{_variable(one)} and {_variable(other)} go together" for one, other in halves]
    lacking = [(missing, name) for missing, name in _NEEDED if given(name) and not given(missing)]
    problems += [f"{_variable(missing)} is not set, and {_variable(name)} is" for missing, name in lacking]
    if settings.sqs_dlq_url and settings.sqs_dlq_url == settings.sqs_queue_url:
        problems.append("COUNTERSEAL_SQS_DLQ_URL names the queue for steps; dead letters need a queue of their own")
    basic = given("servicenow_username") and given("servicenow_password")
    oauth = given("servicenow_client_id") or given("servicenow_client_secret")
    if settings.servicenow_url is not None and not basic and not oauth:
        problems.append(
            "COUNTERSEAL_SERVICENOW_URL needs COUNTERSEAL_SERVICENOW_USERNAME and COUNTERSEAL_SERVICENOW_PASSWORD, "
            "or COUNTERSEAL_SERVICENOW_CLIENT_ID and COUNTERSEAL_SERVICENOW_CLIENT_SECRET"
        )
    return problems


def _variable(name: str) -> str:
    return f"COUNTERSEAL_{name.upper()}"
