// Roles of users, as JSON and in words.
//
// Pure functions; any thread.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <string>

#include "cli/base/output.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

using RoleGrants = google::protobuf::RepeatedPtrField<v1::RoleGrant>;

// A list of `role` and `queue` (null: the whole cluster).
Json RolesJson(const RoleGrants& roles);
// "admin in the whole cluster, viewer in nlp"; "none".
std::string RolesText(const RoleGrants& roles);

}  // namespace muster
