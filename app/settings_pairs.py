"""What has to be set together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.settings import Settings


def pair_problems(settings: Settings) -> list[str]:
    """Every setting that is missing because another one is there, as sentences without a full stop."""
    problems = [*_servicenow_problems(settings), *_slack_problems(settings), *_bpmn_problems(settings)]
    if settings.model_url and settings.model_api_key is None:
        problems.append("COUNTERSEAL_MODEL_API_KEY is not set, and COUNTERSEAL_MODEL_URL is")
    if settings.sqs_dlq_url and settings.sqs_queue_url is None:
        problems.append("COUNTERSEAL_SQS_QUEUE_URL is not set, and COUNTERSEAL_SQS_DLQ_URL is")
    if settings.sqs_dlq_url and settings.sqs_dlq_url == settings.sqs_queue_url:
        problems.append("COUNTERSEAL_SQS_DLQ_URL names the queue for steps; dead letters need a queue of their own")
    if settings.s3_object_lock_mode and not settings.s3_bucket:
        problems.append("COUNTERSEAL_S3_BUCKET is not set, and COUNTERSEAL_S3_OBJECT_LOCK_MODE is")
    return problems


def _servicenow_problems(settings: Settings) -> list[str]:
    if settings.servicenow_url is None:
        return []
    if (settings.servicenow_client_id is None) != (settings.servicenow_client_secret is None):
        return ["COUNTERSEAL_SERVICENOW_CLIENT_ID and COUNTERSEAL_SERVICENOW_CLIENT_SECRET go together"]
    basic = settings.servicenow_username is not None and settings.servicenow_password is not None
    if settings.servicenow_client_id is None and not basic:
        words = (
            "COUNTERSEAL_SERVICENOW_URL needs COUNTERSEAL_SERVICENOW_USERNAME and COUNTERSEAL_SERVICENOW_PASSWORD, "
            "or COUNTERSEAL_SERVICENOW_CLIENT_ID and COUNTERSEAL_SERVICENOW_CLIENT_SECRET"
        )
        return [words]
    return []


def _slack_problems(settings: Settings) -> list[str]:
    if settings.slack_signing_secret is not None and settings.slack_bot_token is None:
        return ["COUNTERSEAL_SLACK_BOT_TOKEN is not set, and COUNTERSEAL_SLACK_SIGNING_SECRET is"]
    return []


def _bpmn_problems(settings: Settings) -> list[str]:
    problems = []
    if (settings.bpmn_username is None) != (settings.bpmn_password is None):
        problems.append("COUNTERSEAL_BPMN_USERNAME and COUNTERSEAL_BPMN_PASSWORD go together")
    if settings.bpmn_url is None and settings.bpmn_callback_url is not None:
        problems.append("COUNTERSEAL_BPMN_URL is not set, and COUNTERSEAL_BPMN_CALLBACK_URL is")
    return problems
