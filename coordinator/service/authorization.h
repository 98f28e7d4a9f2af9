// Authorization: which kind of caller may call what, at every listener of the coordinator. What a
// user or admin may do then is for coordinator/access. Methods that neither names are denied, so a
// new RPC is closed until it is added.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/security/identity.h"

namespace muster {

// The identity of a caller.
enum class Caller : unsigned {
  kNobody = 1,  // over TLS, without a certificate
  kToken = 2,   // on loopback or a Unix socket, with the cluster's token
  kAdmin = 4,   // the following ones have a certificate of that role
  kNode = 8,
  kScraper = 16,
  kCoordinator = 32,
  kUser = 64,
};

Caller CallerOf(Role role);
// "a node's certificate", for messages.
std::string_view CallerText(Caller caller);

// `method` as HTTP/2 carries it: "/muster.v1.Client/Submit".
bool MayCall(std::string_view method, Caller caller);
// `path` of an HTTP request, without the query.
bool MayGet(std::string_view path, Caller caller);

// OK, or why not: kUnauthenticated if a certificate might help, else kPermissionDenied.
Status Authorize(std::string_view method, Caller caller);
Status AuthorizePage(std::string_view path, Caller caller);

// All methods that the table names.
std::vector<std::string_view> KnownMethods();
// The paths that any of them may get; as HttpServer::Handle takes them.
std::vector<std::string_view> KnownPages();

}  // namespace muster
