#include "coordinator/service/authorization.h"

#include <algorithm>
#include <ranges>
#include <span>

#include "coordinator/access/operations.h"

namespace muster {
namespace {

struct Rule {
  std::string_view what;
  unsigned callers;
};

constexpr unsigned operator|(Caller a, Caller b) {
  return static_cast<unsigned>(a) | static_cast<unsigned>(b);
}
constexpr unsigned kClients =
    Caller::kToken | Caller::kAdmin | static_cast<unsigned>(Caller::kUser);
constexpr unsigned kWorkers = Caller::kToken | Caller::kNode;

// Beside the operations of clients (coordinator/access), for which roles decide further.
constexpr Rule kCalls[] = {
    // Which node the stream represents follows from its certificate and its Hello.
    {"/muster.v1.Worker/Session", kWorkers},
    // Those of the jobs of which the node has ranks.
    {"/muster.v1.Secrets/FetchSecrets", kWorkers},
    {"/muster.v1.Enrol/Join", static_cast<unsigned>(Caller::kNobody)},
    {"/muster.v1.Enrol/Issuers", static_cast<unsigned>(Caller::kNobody)},
    {"/muster.v1.Enrol/Login", static_cast<unsigned>(Caller::kNobody)},
    {"/muster.v1.Enrol/Renew", static_cast<unsigned>(Caller::kNode)},
};

constexpr unsigned kEveryone = ~0U;

// Over TLS. On loopback metrics are open, and the status page's own requests need its key
// (coordinator/page/page_routes.h). Pages and their files contain nothing of the cluster; what they
// then ask for shows job files and logs, so scrapers may not read it, and users what their roles
// let them see, for which the server asks.
constexpr Rule kPages[] = {
    {"/metrics", Caller::kScraper | Caller::kAdmin},
    {"/sd", Caller::kScraper | Caller::kAdmin},
    {"/healthz", Caller::kScraper | Caller::kAdmin},
    {"/livez", Caller::kScraper | Caller::kAdmin},
    {"/readyz", Caller::kScraper | Caller::kAdmin},
    {"/", kEveryone},
    {"/jobs/", kEveryone},
    {"/assets/", kEveryone},
    {"/auth/", kEveryone},
    {"/api/v1/events", Caller::kAdmin | Caller::kUser},
    {"/api/v1/log", Caller::kAdmin | Caller::kUser},
};

// A path that ends with '/' and is longer also covers all below it, as in HttpServer.
bool Names(const Rule& rule, std::string_view what) {
  const bool folder = rule.what.size() > 1 && rule.what.ends_with('/');
  return folder ? what.starts_with(rule.what) : what == rule.what;
}

bool Allows(std::span<const Rule> rules, std::string_view what, Caller caller) {
  return std::any_of(rules.begin(), rules.end(), [&](const Rule& rule) {
    return Names(rule, what) && (rule.callers & static_cast<unsigned>(caller)) != 0;
  });
}

}  // namespace

Caller CallerOf(Role role) {
  switch (role) {
    case Role::kAdmin: return Caller::kAdmin;
    case Role::kCoordinator: return Caller::kCoordinator;
    case Role::kNode: return Caller::kNode;
    case Role::kScraper: return Caller::kScraper;
    case Role::kUser: return Caller::kUser;
  }
  return Caller::kNobody;
}

std::string_view CallerText(Caller caller) {
  switch (caller) {
    case Caller::kNobody: return "a client without a certificate";
    case Caller::kToken: return "a client with the cluster's token";
    case Caller::kAdmin: return "an admin's certificate";
    case Caller::kNode: return "a node's certificate";
    case Caller::kScraper: return "a scraper's certificate";
    case Caller::kCoordinator: return "a coordinator's certificate";
    case Caller::kUser: return "a user's certificate";
  }
  return "an unknown client";
}

bool MayCall(std::string_view method, Caller caller) {
  const auto rules = OperationRules();
  if (std::ranges::find(rules, method, &OperationRule::method) != rules.end())
    return (kClients & static_cast<unsigned>(caller)) != 0;
  return Allows(kCalls, method, caller);
}

bool MayGet(std::string_view path, Caller caller) { return Allows(kPages, path, caller); }

Status Authorize(std::string_view method, Caller caller) {
  if (MayCall(method, caller)) return OkStatus();
  const std::string what = std::string(CallerText(caller)) + " may not call " + std::string(method);
  if (caller == Caller::kNobody)
    return Unauthenticated(what + "; name a directory of credentials with --tls or MUSTER_TLS");
  return PermissionDenied(what);
}

Status AuthorizePage(std::string_view path, Caller caller) {
  if (MayGet(path, caller)) return OkStatus();
  if (caller == Caller::kNobody)
    return Unauthenticated("this needs a certificate, or somebody who has signed in");
  return PermissionDenied(std::string(CallerText(caller)) + " may not read " + std::string(path));
}

std::vector<std::string_view> KnownMethods() {
  std::vector<std::string_view> methods;
  for (const OperationRule& rule : OperationRules()) methods.push_back(rule.method);
  for (const Rule& rule : kCalls) methods.push_back(rule.what);
  return methods;
}

std::vector<std::string_view> KnownPages() {
  std::vector<std::string_view> pages;
  for (const Rule& rule : kPages) pages.push_back(rule.what);
  return pages;
}

}  // namespace muster
