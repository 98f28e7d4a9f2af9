#include "coordinator/service/authorization.h"

#include <algorithm>
#include <array>

namespace muster {
namespace {

struct Rule {
  std::string_view what;
  unsigned callers;
};

constexpr unsigned operator|(Caller a, Caller b) {
  return static_cast<unsigned>(a) | static_cast<unsigned>(b);
}
constexpr unsigned kClients = Caller::kToken | Caller::kAdmin;
constexpr unsigned kWorkers = Caller::kToken | Caller::kNode;

constexpr Rule kCalls[] = {
    {"/muster.v1.Client/Submit", kClients},
    {"/muster.v1.Client/GetJob", kClients},
    {"/muster.v1.Client/ListJobs", kClients},
    {"/muster.v1.Client/Cancel", kClients},
    {"/muster.v1.Client/Suspend", kClients},
    {"/muster.v1.Client/Resume", kClients},
    {"/muster.v1.Client/UpdateJob", kClients},
    {"/muster.v1.Client/HoldJob", kClients},
    {"/muster.v1.Client/ReleaseJob", kClients},
    {"/muster.v1.Client/ExplainJob", kClients},
    {"/muster.v1.Client/Watch", kClients},
    {"/muster.v1.Client/ListEvents", kClients},
    {"/muster.v1.Client/ListNodes", kClients},
    {"/muster.v1.Client/ReadLog", kClients},
    {"/muster.v1.Client/Version", kClients},
    {"/muster.v1.Client/Drain", kClients},
    {"/muster.v1.Client/Undrain", kClients},
    {"/muster.v1.Client/InjectFault", kClients},
    {"/muster.v1.Client/VerifyCheckpoints", kClients},
    {"/muster.v1.Client/ApplyQueues", kClients},
    {"/muster.v1.Client/ShowQueues", kClients},
    {"/muster.v1.Client/ShowUsage", kClients},
    {"/muster.v1.Client/ExportSchedule", kClients},
    // Which node the stream represents follows from its certificate and its Hello.
    {"/muster.v1.Worker/Session", kWorkers},
    {"/muster.v1.Enrol/Join", static_cast<unsigned>(Caller::kNobody)},
    {"/muster.v1.Enrol/Renew", static_cast<unsigned>(Caller::kNode)},
};

// Over TLS. On loopback metrics are open, and the status page's own requests need its key
// (coordinator/page/page_routes.h). A page shows job files and logs, so scrapers may not read it.
constexpr Rule kPages[] = {
    {"/metrics", Caller::kScraper | Caller::kAdmin},
    {"/sd", Caller::kScraper | Caller::kAdmin},
    {"/healthz", Caller::kScraper | Caller::kAdmin},
    {"/", static_cast<unsigned>(Caller::kAdmin)},
    {"/jobs/", static_cast<unsigned>(Caller::kAdmin)},
    {"/assets/", static_cast<unsigned>(Caller::kAdmin)},
    {"/api/v1/events", static_cast<unsigned>(Caller::kAdmin)},
    {"/api/v1/log", static_cast<unsigned>(Caller::kAdmin)},
};

constexpr auto kMethods = [] {
  std::array<std::string_view, std::size(kCalls)> methods;
  for (std::size_t i = 0; i < methods.size(); ++i) methods[i] = kCalls[i].what;
  return methods;
}();

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
  }
  return "an unknown client";
}

bool MayCall(std::string_view method, Caller caller) { return Allows(kCalls, method, caller); }

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
  return PermissionDenied(std::string(CallerText(caller)) + " may not read " + std::string(path));
}

std::span<const std::string_view> KnownMethods() { return kMethods; }

}  // namespace muster
