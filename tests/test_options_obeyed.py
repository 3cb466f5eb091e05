"""Every option that docs/options-broker.md calls effective has a test that fails when nobody reads it.

The quick test looks whether each has one; the slow one runs each of them as if its option were ignored, and
sees it fail.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker.test_options_page import SECTIONS
from tests.ignored import ignore

from flaremq.base.settings import java_names

ROOT = Path(__file__).parent.parent

OBEYED = {
    "haListenPort": "ha/test_options.py::test_the_ha_port_may_be_another_one",
    "haMasterAddress": "ha/test_options.py::test_a_slave_follows_the_master_that_it_was_told_of",
    "haSendHeartbeatInterval": "ha/test_options.py::test_heartbeats_come_as_often_as_was_set",
    "haHousekeepingInterval": (
        "ha/test_options.py::test_a_silent_slave_is_disconnected_after_the_time_that_was_set"
    ),
    "haTransferBatchSize": "ha/test_options.py::test_no_chunk_is_larger_than_was_set",
    "haMaxGapNotInSync": "ha/test_options.py::test_a_slave_counts_as_near_within_the_gap_that_was_set",
    "haFlowControlEnable": "ha/test_options.py::test_under_flow_control_a_slave_gets_no_more_than_was_set",
    "maxHaTransferByteInSecond": (
        "ha/test_options.py::test_under_flow_control_a_slave_gets_no_more_than_was_set"
    ),
    "slaveTimeout": "ha/test_options.py::test_an_answer_waits_for_slaves_as_long_as_was_set",
    "inSyncReplicas": "ha/test_options.py::test_an_answer_waits_for_as_many_slaves_as_were_set",
    "brokerClusterName": "broker/stats/test_metrics.py::test_every_metric_has_the_labels_of_its_broker",
    "brokerName": "broker/test_registration.py::test_a_broker_tells_who_it_is_and_what_it_has",
    "brokerId": "broker/handlers/test_consumers.py::TestResetHere::test_slave_resets_nothing",
    "brokerIP1": "broker/test_registration.py::test_a_broker_tells_who_it_is_and_what_it_has",
    "brokerIP2": "broker/test_registration.py::test_a_broker_tells_who_it_is_and_what_it_has",
    "namesrvAddr": (
        "broker/test_options.py::test_a_nameserver_that_never_answers_is_given_up_after_the_time_that_was_set"
    ),
    "brokerPermission": "broker/pull/test_lane.py::test_who_forbids_a_pull_is_told",
    "regionId": "broker/test_options.py::test_the_region_is_told_in_answers_and_stored_with_messages",
    "traceOn": "broker/test_app.py::test_tracing_that_is_switched_off_is_off_for_the_next_send_in_both_lanes",
    "autoCreateTopicEnable": "broker/tables/test_topics.py::test_pattern_and_own_topics_follow_the_settings",
    "autoCreateSubscriptionGroup": (
        "broker/handlers/test_admin_group.py::test_one_group_is_shown_and_made_by_asking_where_that_is_allowed"
    ),
    "defaultTopicQueueNums": (
        "broker/test_app.py::test_a_changed_number_of_queues_holds_for_topics_made_from_then_on"
    ),
    "storeReplyMessageEnable": (
        "broker/handlers/test_reply.py::test_replies_are_kept_unless_that_is_switched_off"
    ),
    "transactionTimeOut": (
        "broker/transactions/test_transactions.py::test_how_often_and_when_producers_are_asked_can_be_set"
    ),
    "transactionCheckInterval": (
        "broker/transactions/test_transactions.py::test_how_often_and_when_producers_are_asked_can_be_set"
    ),
    "transactionCheckMax": (
        "broker/transactions/test_transactions.py"
        "::test_after_the_last_check_a_message_is_parked_and_can_be_brought_back"
    ),
    "endTransactionPoolQueueCapacity": "broker/test_options.py::test_ends_of_transactions_have_a_limit",
    "recallMessageEnable": "broker/delay/test_timers.py::test_recall_can_be_switched_off",
    "allowRecallWhenBrokerNotWriteable": (
        "broker/delay/test_timers.py::test_whether_a_broker_that_is_only_read_takes_recalls_can_be_chosen"
    ),
    "clusterTopicEnable": "broker/tables/test_topics.py::test_pattern_and_own_topics_follow_the_settings",
    "brokerTopicEnable": "broker/test_options.py::test_topics_that_a_broker_always_has_follow_the_settings",
    "traceTopicEnable": "broker/tables/test_topics.py::test_pattern_and_own_topics_follow_the_settings",
    "msgTraceTopicName": "broker/test_options.py::test_topics_that_a_broker_always_has_follow_the_settings",
    "reviveQueueNum": "broker/test_options.py::test_topics_that_a_broker_always_has_follow_the_settings",
    "validateSystemTopicWhenUpdateTopic": (
        "broker/handlers/test_admin_topic.py::test_what_is_forbidden_by_default_may_be_allowed"
    ),
    "enableCreateSysGroup": (
        "broker/tables/test_subscriptiongroups.py::test_only_system_groups_are_made_where_groups_are_made_by_hand"
    ),
    "enableMixedMessageType": (
        "broker/handlers/test_admin_topic.py::test_what_is_forbidden_by_default_may_be_allowed"
    ),
    "startAcceptSendRequestTimeStamp": (
        "broker/test_options.py::test_sends_before_the_time_that_was_set_are_refused"
    ),
    "deduplicationWindowCount": (
        "broker/send/test_deduplication.py::test_a_message_from_before_the_window_is_refused"
    ),
    "deduplicationWindowSec": (
        "broker/send/test_deduplication.py::test_the_log_is_walked_from_the_first_message_that_is_needed"
    ),
    "deduplicationProducersMax": (
        "broker/send/test_deduplication.py::"
        "test_producers_beyond_the_limit_are_refused_until_an_idle_one_is_forgotten"
    ),
    "rejectTransactionMessage": (
        "broker/tables/test_producers.py::test_producers_are_not_noted_where_nobody_needs_them"
    ),
    "longPollingEnable": "broker/test_options.py::test_how_long_a_pull_waits_is_its_own_wish_or_the_brokers",
    "shortPollingTimeMills": (
        "broker/test_options.py::test_how_long_a_pull_waits_is_its_own_wish_or_the_brokers"
    ),
    "litePullMessageEnable": (
        "broker/pull/test_lane.py::test_lite_pulls_are_served_unless_they_are_switched_off"
    ),
    "rejectPullConsumerEnable": (
        "broker/handlers/test_clients.py::test_pull_consumers_are_passed_over_where_they_are_rejected"
    ),
    "enablePropertyFilter": (
        "broker/tables/test_filters.py::test_expressions_are_refused_where_they_are_switched_off"
    ),
    "filterSupportRetry": (
        "broker/tables/test_filters.py::test_retries_are_filtered_like_their_topic_where_that_is_wished"
    ),
    "enableCalcFilterBitMap": (
        "broker/pull/test_lane.py::test_bit_maps_beside_queue_entries_say_which_groups_want_a_message"
    ),
    "expectConsumerNumUseFilter": (
        "broker/test_options.py::test_bit_maps_are_as_long_as_consumers_and_errors_need"
    ),
    "maxErrorRateOfBloomFilter": (
        "broker/test_options.py::test_bit_maps_are_as_long_as_consumers_and_errors_need"
    ),
    "filterDataCleanTimeSpan": (
        "broker/test_options.py::test_filters_of_a_group_that_left_are_kept_as_long_as_was_set"
    ),
    "slaveReadEnable": (
        "broker/test_options.py::test_consumers_are_sent_to_slaves_unless_that_is_switched_off"
    ),
    "useServerSideResetOffset": (
        "broker/handlers/test_consumers.py::TestResetThere::test_consumers_are_told_and_nothing_is_set_here"
    ),
    "enableBroadcastOffsetStore": (
        "broker/test_options.py::test_offsets_of_broadcasting_clients_are_noted_unless_that_is_switched_off"
    ),
    "broadcastOffsetExpireSecond": (
        "broker/test_options.py::test_broadcasting_clients_are_forgotten_when_their_time_is_over"
    ),
    "broadcastOffsetExpireMaxSecond": (
        "broker/test_options.py::test_broadcasting_clients_are_forgotten_when_their_time_is_over"
    ),
    "disableConsumeIfConsumerReadSlowly": (
        "broker/test_slowconsumers.py::test_who_is_too_far_behind_is_disabled"
    ),
    "consumerFallbehindThreshold": "broker/test_slowconsumers.py::test_who_is_too_far_behind_is_disabled",
    "notifyConsumerIdsChangedEnable": (
        "broker/tables/test_consumers.py::test_nobody_is_told_where_nobody_needs_to_know"
    ),
    "realTimeNotifyConsumerChange": (
        "broker/tables/test_consumers.py::test_changes_wait_to_be_told_where_that_is_wished"
    ),
    "enableRegisterProducer": (
        "broker/tables/test_producers.py::test_producers_are_not_noted_where_nobody_needs_them"
    ),
    "channelExpiredTimeout": "broker/test_options.py::test_clients_that_are_silent_for_too_long_are_dropped",
    "registerNameServerPeriod": "broker/test_registration.py::test_it_registers_again_with_every_period",
    "registerBrokerTimeoutMills": (
        "broker/test_options.py::test_a_nameserver_that_never_answers_is_given_up_after_the_time_that_was_set"
    ),
    "forceRegister": (
        "broker/test_registration.py::test_unforced_it_asks_first_and_registers_only_if_something_differs"
    ),
    "compressedRegister": "broker/test_registration.py::test_a_compressed_body_says_so",
    "enableSingleTopicRegister": "broker/test_registration.py::test_changes_may_go_topic_by_topic",
    "enableSplitRegistration": (
        "broker/test_registration.py::test_many_topics_are_split_but_never_at_the_first_time"
    ),
    "splitRegistrationSize": (
        "broker/test_registration.py::test_many_topics_are_split_but_never_at_the_first_time"
    ),
    "updateNameServerAddrPeriod": "broker/test_tasks.py::test_periods_are_those_of_the_settings",
    "fetchNameSrvAddrByDnsLookup": (
        "broker/test_options.py::test_a_name_that_stands_for_several_nameservers_is_looked_up"
    ),
    "enableSlaveActingMaster": (
        "broker/test_registration.py::test_a_member_of_a_group_says_that_one_may_act_for_its_master"
    ),
    "enableRemoteEscape": (
        "broker/replicas/test_duty.py::"
        "test_an_acting_master_that_may_not_send_elsewhere_delivers_nothing_and_says_so"
    ),
    "skipPreOnline": "broker/replicas/test_duty.py::test_the_exchange_may_be_skipped",
    "compatibleWithOldNameSrv": (
        "broker/replicas/test_members.py::test_old_name_servers_are_asked_for_routes_only_where_that_is_wished"
    ),
    "brokerHeartbeatInterval": (
        "broker/replicas/test_members.py::test_members_ask_and_are_heard_as_often_as_was_set[heartbeat_ms]"
    ),
    "sendHeartbeatTimeoutMillis": (
        "broker/replicas/test_members.py::test_a_heartbeat_has_the_time_that_was_set"
    ),
    "brokerNotActiveTimeoutMillis": "broker/replicas/test_duty.py::test_old_news_are_none",
    "syncBrokerMemberGroupPeriod": (
        "broker/replicas/test_members.py::test_members_ask_and_are_heard_as_often_as_was_set[ask_members_ms]"
    ),
    "flushConsumerOffsetInterval": "broker/test_tasks.py::test_periods_are_those_of_the_settings",
    "consumerOffsetUpdateVersionStep": (
        "broker/tables/test_offsets.py::test_version_grows_with_every_so_many_commits"
    ),
    "autoDeleteUnusedStats": (
        "broker/stats/test_stats.py::test_figures_of_the_deleted_stay_if_the_operator_wants_them"
    ),
    "maxStatsIdleTimeInMinutes": "broker/stats/test_stats.py::test_idle_items_are_dropped_and_begin_again",
    "metricsExporterType": "broker/test_options.py::test_figures_are_shown_at_the_address_that_was_set",
    "metricsLabel": "broker/stats/test_metrics.py::test_further_labels_and_metrics_are_shown",
    "metricsOtelCardinalityLimit": "broker/stats/test_metrics.py::test_too_many_members_are_cut_off",
    "metricsPromExporterHost": "broker/test_options.py::test_figures_are_shown_at_the_address_that_was_set",
    "metricsPromExporterPort": "broker/test_options.py::test_figures_are_shown_at_the_address_that_was_set",
    "configBlackList": "broker/test_options.py::test_names_on_the_black_list_cannot_be_changed_from_afar",
    "brokerFastFailureEnable": (
        "broker/test_options.py::test_no_request_is_refused_for_its_age_where_that_is_switched_off"
    ),
    "sendThreadPoolQueueCapacity": "broker/test_options.py::test_sends_beyond_their_capacity_are_refused",
    "pullThreadPoolQueueCapacity": "broker/test_options.py::test_pulls_beyond_their_capacity_are_refused",
    "queryThreadPoolQueueCapacity": (
        "broker/test_options.py::test_requests_of_a_family_beyond_its_capacity_are_refused[query_max]"
    ),
    "consumerManagerThreadPoolQueueCapacity": (
        "broker/test_options.py::test_requests_of_a_family_beyond_its_capacity_are_refused[consumer_max]"
    ),
    "adminBrokerThreadPoolQueueCapacity": (
        "broker/test_options.py::test_requests_of_a_family_beyond_its_capacity_are_refused[admin_max]"
    ),
    "waitTimeMillsInSendQueue": (
        "broker/test_options.py::test_a_request_that_has_lain_unread_for_longer_than_was_set_is_refused[send_age_ms]"
    ),
    "waitTimeMillsInPullQueue": (
        "broker/test_options.py::test_a_request_that_has_lain_unread_for_longer_than_was_set_is_refused[pull_age_ms]"
    ),
    "waitTimeMillsInLitePullQueue": (
        "broker/test_options.py::"
        "test_a_request_that_has_lain_unread_for_longer_than_was_set_is_refused[lite_pull_age_ms]"
    ),
    "waitTimeMillsInAdminBrokerQueue": (
        "broker/test_options.py::test_an_admin_request_that_stands_in_line_for_too_long_is_refused"
    ),
    "queryMessageThreadPoolNums": "broker/test_options.py::test_slow_work_has_as_many_threads_as_were_set",
    "enableDLegerCommitLog": (
        "broker/replicas/test_group_options.py::test_the_log_is_kept_by_a_group_where_that_is_wished"
    ),
    "dLegerGroup": (
        "broker/replicas/test_group_options.py::test_a_group_has_the_name_that_was_set_or_that_of_its_broker"
    ),
    "dLegerPeers": (
        "broker/replicas/test_group_options.py::test_a_member_listens_where_the_list_of_members_says"
    ),
    "dLegerSelfId": "broker/replicas/test_group_options.py::test_a_member_is_who_it_was_told_to_be",
    "storePathDLedgerCommitLog": (
        "broker/replicas/test_group_options.py::test_entries_lie_in_the_folder_that_was_set"
    ),
    "dLegerProtocol": "broker/replicas/test_group_options.py::test_a_group_follows_the_rules_that_were_set",
    "enableBatchPush": (
        "broker/replicas/test_group_options.py::test_entries_are_pushed_in_batches_where_that_is_wished"
    ),
    "preferredLeaderId": (
        "broker/replicas/test_group_options.py::test_a_preferred_member_leads_whenever_it_can"
    ),
    "dLegerElectionTimeout": (
        "broker/replicas/test_group_options.py::test_a_leader_is_missed_after_the_time_that_was_set"
    ),
    "dLegerCommitTimeout": (
        "broker/replicas/test_group_options.py::test_an_answer_waits_for_a_majority_as_long_as_was_set"
    ),
    "dLegerPushSize": "broker/replicas/test_group_options.py::test_pushes_are_as_large_as_was_set",
    "dLegerScrubInterval": (
        "broker/replicas/test_group_options.py::test_the_log_is_read_again_once_in_the_time_that_was_set"
    ),
    "dLegerScrubBytesPerSecond": (
        "broker/replicas/test_group_options.py::test_the_log_is_read_as_fast_as_was_set"
    ),
    "bindAddress": "remoting/test_options.py::test_a_server_listens_where_it_was_told",
    "listenPort": "remoting/test_options.py::test_a_server_listens_where_it_was_told",
    "serverSocketBacklog": (
        "remoting/test_options.py::test_no_more_connections_wait_to_be_accepted_than_was_set"
    ),
    "serverChannelMaxIdleTimeSeconds": (
        "remoting/test_options.py::test_a_silent_connection_is_closed_when_its_time_is_over"
    ),
    "serverSocketSndBufSize": (
        "remoting/test_options.py::test_sockets_have_buffers_of_the_size_that_was_set[send_buffer-7]"
    ),
    "serverSocketRcvBufSize": (
        "remoting/test_options.py::test_sockets_have_buffers_of_the_size_that_was_set[receive_buffer-8]"
    ),
    "writeBufferHighWaterMark": (
        "remoting/test_options.py::test_reading_stops_and_starts_again_at_the_marks_that_were_set"
    ),
    "writeBufferLowWaterMark": (
        "remoting/test_options.py::test_reading_stops_and_starts_again_at_the_marks_that_were_set"
    ),
    "serverAsyncSemaphoreValue": (
        "remoting/test_server.py::test_a_server_asks_its_peers_no_more_at_a_time_than_it_may"
    ),
    "shutdownWaitTimeSeconds": (
        "remoting/test_options.py::test_a_stop_gives_up_waiting_when_its_time_is_over"
    ),
    "connectTimeoutMillis": (
        "remoting/test_options.py::test_connecting_is_given_up_after_the_time_that_was_set"
    ),
    "clientChannelMaxIdleTimeSeconds": (
        "remoting/test_server.py::"
        "test_a_connection_that_nobody_uses_is_closed_and_the_next_call_makes_another"
    ),
    "clientOnewaySemaphoreValue": (
        "remoting/test_options.py::test_no_more_one_way_sends_are_under_way_than_was_set"
    ),
    "clientAsyncSemaphoreValue": (
        "remoting/test_options.py::test_no_more_calls_wait_for_their_answer_than_was_set"
    ),
    "clientCloseSocketIfTimeout": (
        "remoting/test_options.py::test_whether_a_call_that_timed_out_costs_its_connection_is_an_option"
    ),
    "tls.server.mode": "remoting/test_tls.py::test_only_tls_is_served_where_it_is_enforced",
    "tls.server.certPath": "remoting/test_tls.py::test_only_tls_is_served_where_it_is_enforced",
    "tls.server.keyPath": "remoting/test_tls.py::test_only_tls_is_served_where_it_is_enforced",
    "tls.server.keyPassword": "remoting/test_tls.py::test_an_encrypted_key_is_opened_with_its_password",
    "tls.server.trustCertPath": (
        "remoting/test_tls.py::test_clients_without_a_trusted_certificate_are_refused_where_one_is_required"
    ),
    "tls.server.need.client.auth": (
        "remoting/test_tls.py::test_clients_without_a_trusted_certificate_are_refused_where_one_is_required"
    ),
    "tls.server.authClient": "remoting/test_tls.py::test_wishes_that_cannot_come_true_are_refused",
    "tls.test.mode.enable": "remoting/test_tls.py::test_wishes_that_cannot_come_true_are_refused",
    "tls.config.file": "remoting/test_tls.py::test_the_file_of_tls_options_is_read_where_it_is_named",
    "tls.enable": (
        "remoting/test_tls.py::"
        "test_a_caller_talks_tls_where_it_was_told_or_where_its_own_port_speaks_nothing_else"
    ),
    "tls.client.trustCertPath": (
        "remoting/test_tls.py::test_a_caller_that_was_told_whom_to_trust_looks_at_certificates"
    ),
    "tls.client.authServer": (
        "remoting/test_tls.py::test_a_caller_believes_only_servers_that_it_was_told_to_trust"
    ),
    "tls.client.certPath": "remoting/test_tls.py::test_a_caller_shows_its_certificate",
    "tls.client.keyPath": "remoting/test_tls.py::test_a_caller_shows_its_certificate",
    "tls.client.keyPassword": "remoting/test_tls.py::test_a_caller_shows_its_certificate",
    "kvConfigPath": "namesrv/test_options.py::test_small_settings_lie_in_the_file_that_was_set",
    "configStorePath": ("namesrv/test_options.py::test_changed_settings_are_kept_in_the_file_that_was_set"),
    "scanNotActiveBrokerInterval": (
        "namesrv/test_options.py::test_silent_brokers_are_looked_for_as_often_as_was_set"
    ),
    "orderMessageEnable": (
        "namesrv/test_options.py::test_routes_carry_the_order_of_their_topic_where_that_is_wished"
    ),
    "returnOrderTopicConfigToBroker": (
        "namesrv/test_options.py::test_brokers_are_told_the_order_of_topics_unless_that_is_switched_off"
    ),
    "deleteTopicWithBrokerRegistration": (
        "namesrv/test_options.py::"
        "test_a_topic_that_its_broker_no_longer_names_goes_at_once_where_that_is_wished"
    ),
    "supportActingMaster": (
        "namesrv/test_options.py::test_a_slave_stands_for_its_missing_master_where_that_is_wished"
    ),
    "notifyMinBrokerIdChanged": (
        "namesrv/test_options.py::test_members_are_told_who_has_the_lowest_id_where_that_is_wished"
    ),
    "enableTopicList": "namesrv/test_options.py::test_lists_of_topics_may_be_switched_off",
    "enableAllTopicList": "namesrv/test_options.py::test_lists_of_topics_may_be_switched_off",
}

BEFORE_SETTINGS = frozenset({"tls.config.file"})
"""Read before there are any settings, so `ignore` does not reach them."""


def test_every_effective_option_has_a_test_that_would_miss_it() -> None:
    sections = (section for part in SECTIONS.values() for section in part)
    effective = {java for section in sections for java in java_names(section).values()}
    assert OBEYED.keys() == effective
    for test in OBEYED.values():
        file, *_, name = test.split("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / "tests" / file).read_text(), test


def test_an_option_that_is_unknown_cannot_be_ignored() -> None:
    with pytest.raises(AssertionError, match="noSuchOption"):
        ignore("noSuchOption")


@pytest.mark.slow
@pytest.mark.parametrize("option", sorted(OBEYED.keys() - BEFORE_SETTINGS))
def test_the_test_of_an_option_fails_when_the_option_is_ignored(option: str) -> None:
    how = ("-q", "-p", "no:cacheprovider", "--timeout=60", "-m", "", "--ignored-option", option)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *how, f"tests/{OBEYED[option]}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout[-2000:]
    assert " failed" in run.stdout
