"""Who may do what, and in which words the rest is refused."""

from __future__ import annotations

from tests.kube.conformance.ground import DOCS, Ground, check, pod

RBAC = f"{DOCS}reference/access-authn-authz/rbac/"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
READ = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}


@check(
    "authentication",
    cites=f"{DOCS}reference/access-authn-authz/authentication/: 401",
)
async def unknown_tokens_are_refused(ground: Ground) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    # A server that takes whoever is unknown for system:anonymous and lets that user in refuses nobody:
    # that is how it was set up, not what a token is worth.
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    review = await ground.http.call("POST", path, body, headers=wrong)
    if review.status == 201:
        assert review.document["status"]["userInfo"]["username"] == "system:anonymous"
        return
    (await ground.http.call("GET", ground.maps, headers=wrong)).refused(401, "Unauthorized", "Unauthorized")


@check("rbac", cites=f"{RBAC}: nothing is allowed but by a rule that is bound to the user")
async def what_no_rule_allows_is_forbidden(ground: Ground) -> None:
    await ground.map()
    eve = await ground.as_user("eve")
    answer = await ground.http.call("GET", f"{ground.maps}/map", headers=eve)
    answer.refused(
        403,
        "Forbidden",
        'configmaps "map" is forbidden: User "eve" cannot get resource "configmaps" in API group "" in the '
        f'namespace "{ground.namespace}"',
    )
    await ground.allow("eve", READ)

    async def is_allowed() -> bool:
        return (await ground.http.call("GET", f"{ground.maps}/map", headers=eve)).status == 200

    await ground.until("eve may read", is_allowed)
    (await ground.http.call("DELETE", f"{ground.maps}/map", headers=eve)).refused(
        403, "Forbidden", "cannot delete"
    )
    answer = await ground.http.call("GET", "/api/v1/configmaps", headers=eve)
    words = (
        'configmaps is forbidden: User "eve" cannot list resource "configmaps" in API group "" at the '
        "cluster scope"
    )
    answer.refused(403, "Forbidden", words)


@check("rbac_names", cites=f"{RBAC}#referring-to-resources: resourceNames")
async def rules_may_name_objects(ground: Ground) -> None:
    await ground.map("mine")
    await ground.map("other")
    eve = await ground.as_user("eve")
    await ground.allow("eve", {**READ, "verbs": ["get"], "resourceNames": ["mine"]})

    async def is_allowed() -> bool:
        return (await ground.http.call("GET", f"{ground.maps}/mine", headers=eve)).status == 200

    await ground.until("eve may read hers", is_allowed)
    (await ground.http.call("GET", f"{ground.maps}/other", headers=eve)).refused(403, "Forbidden")


@check("rbac_subresources", cites=f"{RBAC}#referring-to-resources: pods/log is not pods")
async def subresources_need_rules_of_their_own(ground: Ground) -> None:
    await ground.create(ground.pods, pod(schedulerName="nobody"))
    eve = await ground.as_user("eve")
    await ground.allow("eve", {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]})

    async def is_allowed() -> bool:
        return (await ground.http.call("GET", f"{ground.pods}/pod", headers=eve)).status == 200

    await ground.until("eve may read Pods", is_allowed)
    answer = await ground.http.call("GET", f"{ground.pods}/pod/log", headers=eve)
    answer.refused(403, "Forbidden", 'cannot get resource "pods/log"')
    patch = {"status": {"message": "x"}}
    answer = await ground.http.call(
        "PATCH", f"{ground.pods}/pod/status", patch, content_type="application/merge-patch+json", headers=eve
    )
    answer.refused(403, "Forbidden", 'cannot patch resource "pods/status"')


@check("access_review", cites=f"{DOCS}reference/access-authn-authz/authorization/#checking-api-access")
async def users_may_ask_what_they_may(ground: Ground) -> None:
    eve = await ground.as_user("eve")
    await ground.allow("eve", READ)

    async def allowed(verb: str, resource: str, subresource: str = "") -> bool:
        asked = {
            "namespace": ground.namespace,
            "verb": verb,
            "resource": resource,
            "subresource": subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        answer = await ground.http.call("POST", REVIEWS, body, headers=eve)
        return bool(answer.ok(201)["status"]["allowed"])

    async def is_allowed() -> bool:
        return await allowed("list", "configmaps")

    await ground.until("eve may list", is_allowed)
    assert not await allowed("delete", "configmaps")
    assert not await allowed("create", "pods", "exec")


@check(cites=f"{RBAC}#privilege-escalation-prevention-and-bootstrapping: nobody grants what is not theirs")
async def nobody_grants_more_than_they_have(ground: Ground) -> None:
    eve = await ground.as_user("eve")
    roles = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}
    await ground.allow("eve", READ, roles)
    path = ground.path("roles", "rbac.authorization.k8s.io/v1")

    async def is_allowed() -> bool:
        body = {"metadata": {"generateName": "fine-"}, "rules": [READ]}
        return (await ground.http.call("POST", path, body, headers=eve)).status == 201

    await ground.until("eve may make Roles", is_allowed)
    more = {"metadata": {"name": "more"}, "rules": [{**READ, "verbs": ["delete"]}]}
    answer = await ground.http.call("POST", path, more, headers=eve)
    answer.refused(403, "Forbidden", "attempting to grant RBAC permissions not currently held")


@check("binding_needs_role", cites=f"{RBAC}#restrictions-on-role-binding-creation-or-update")
async def nobody_binds_a_role_that_is_not_there(ground: Ground) -> None:
    eve = await ground.as_user("eve")
    group = "rbac.authorization.k8s.io"
    await ground.allow(
        "eve", READ, {"apiGroups": [group], "resources": ["rolebindings"], "verbs": ["create"]}
    )
    path = ground.path("rolebindings", f"{group}/v1")
    body = {
        "metadata": {"name": "bound"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "not-yet"},
        "subjects": [],
    }

    async def is_allowed() -> bool:
        return (await ground.http.call("POST", path, body, headers=eve)).status != 403

    await ground.until("eve may make RoleBindings", is_allowed)
    answer = await ground.http.call("POST", path, body, headers=eve)
    answer.refused(404, "NotFound", '"not-yet" not found')


@check("service_accounts", cites=f"{DOCS}reference/access-authn-authz/admission-controllers/#serviceaccount")
async def pods_run_as_accounts_that_are_there(ground: Ground) -> None:
    body = pod("ghost", serviceAccountName="nobody")

    async def has_default() -> bool:
        # Until the namespace has its default account, nothing can be said of any other.
        return (await ground.http.call("GET", f"{ground.path('serviceaccounts')}/default")).status == 200

    await ground.until("the default account is there", has_default)
    answer = await ground.http.call("POST", ground.pods, body)
    words = f'error looking up service account {ground.namespace}/nobody: serviceaccount "nobody" not found'
    answer.refused(403, "Forbidden", words)


@check(
    "exec_needs_create",
    cites="https://kubernetes.io/blog/2025/12/17/kubernetes-v1-35-release/: exec takes the right to create",
    fake_only="clusters before 1.35 ask for get alone",
)
async def commands_take_two_rights(ground: Ground) -> None:
    await ground.create(ground.pods, pod(schedulerName="nobody"))
    eve = await ground.as_user("eve")
    await ground.allow("eve", {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]})
    answer = await ground.http.call("GET", f"{ground.pods}/pod/exec", headers=eve, command="true")
    answer.refused(403, "Forbidden", 'cannot create resource "pods/exec"')
