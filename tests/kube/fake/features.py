"""What the server can do, each feature with a switch of its own.

The switches are there for one test: with any of them off, some conformance check must fail. A feature that
can be taken out without a check noticing is one that nobody may rely on.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Features:
    """Every feature; all are on unless a test says otherwise."""

    uid: bool = True
    generate_name: bool = True
    already_exists: bool = True
    monotonic_version: bool = True
    stale_put: bool = True
    stale_patch: bool = True
    put_needs_version: bool = True
    uid_precondition: bool = True
    no_op_update: bool = True
    status_isolation: bool = True
    generation: bool = True
    merge_patch: bool = True
    json_patch: bool = True
    strategic_merge_patch: bool = True
    apply_patch: bool = True
    apply_conflicts: bool = True
    dry_run: bool = True
    label_selectors: bool = True
    set_selectors: bool = True
    field_selectors: bool = True
    limit_and_continue: bool = True
    consistent_pages: bool = True
    list_items_without_kind: bool = True
    watch: bool = True
    watch_resume: bool = True
    watch_timeout: bool = True
    watch_selector_transitions: bool = True
    bookmarks: bool = True
    gone: bool = True
    expired_continue: bool = True
    finalizers: bool = True
    grace: bool = True
    jobs_orphan_by_default: bool = True
    background_deletion: bool = True
    foreground_deletion: bool = True
    orphan_deletion: bool = True
    absent_owner: bool = True
    delete_collection: bool = True
    namespace_must_exist: bool = True
    namespace_terminating: bool = True
    namespace_deletion: bool = True
    unknown_resource: bool = True
    names_validated: bool = True
    labels_validated: bool = True
    built_in_types: bool = True
    built_in_defaults: bool = True
    unknown_fields: bool = True
    strict_fields: bool = True
    field_warnings: bool = True
    binding_needs_role: bool = True
    pod_validation: bool = True
    pod_immutable: bool = True
    job_validation: bool = True
    job_immutable: bool = True
    object_size: bool = True
    secret_base64: bool = True
    crd_install: bool = True
    crd_defaulting: bool = True
    crd_pruning: bool = True
    crd_validation: bool = True
    crd_cel: bool = True
    crd_list_maps: bool = True
    scale: bool = True
    tables: bool = True
    printer_columns: bool = True
    partial_metadata: bool = True
    discovery: bool = True
    authentication: bool = True
    rbac: bool = True
    rbac_names: bool = True
    rbac_subresources: bool = True
    access_review: bool = True
    service_accounts: bool = True
    quota: bool = True
    logs: bool = True
    log_tail: bool = True
    log_follow: bool = True
    log_previous: bool = True
    log_limit: bool = True
    exec: bool = True
    exec_needs_create: bool = True
    exec_exit_code: bool = True
    exec_close_input: bool = True

    def without(self, *names: str) -> Features:
        """The same with some features taken out."""
        return dataclasses.replace(self, **dict.fromkeys(names, False))


ALL = tuple(field.name for field in dataclasses.fields(Features))
