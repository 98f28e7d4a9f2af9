#include "cli/jobs/user_texts.h"

namespace muster {

Json RolesJson(const RoleGrants& roles) {
  Json list = Json::array();
  for (const v1::RoleGrant& grant : roles)
    list.push_back(
        {{"role", grant.role()}, {"queue", grant.queue().empty() ? Json() : Json(grant.queue())}});
  return list;
}

std::string RolesText(const RoleGrants& roles) {
  std::string text;
  for (const v1::RoleGrant& grant : roles)
    text += (text.empty() ? "" : ", ") + grant.role() + " in " +
            (grant.queue().empty() ? "the whole cluster" : grant.queue());
  return text.empty() ? "none" : text;
}

}  // namespace muster
