// The status page's requests: pages, their assets, their streams of parts, tails of ranks' logs.
//
// /  /jobs/JOB  /assets/...     public; they contain nothing of the cluster
//   /api/v1/events[?job=JOB]      server-sent events "parts" (revised_parts.h)
//   /api/v1/log?job=JOB&rank=R[&generation=G][&offset=N]
//
// Everything below /api needs the page's key as "Authorization: Bearer KEY", or TLS with a
// certificate or session that authorization.h accepts. Other requests get 403 and what to do. What
// a user may not see is not there for that user.
//
// Loop's thread. Nothing here changes anything: the server answers only GET and HEAD.
#pragma once

#include <functional>
#include <string>

#include "common/base/result.h"
#include "common/telemetry/http_server.h"
#include "coordinator/control/controller.h"
#include "coordinator/page/log_text.h"
#include "coordinator/page/page_feeds.h"

namespace muster {

// What a browser may do with a page: load only what this server itself has sent.
inline constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for "
    "'script'; trusted-types 'none'";

struct PageContext {
  std::string key;  // not empty
  const Controller& controller;
  // What the one who asks may see; only for requests with a peer.
  std::function<PageViewer(const CertificateInfo& peer)> viewer_of;
  // As PageSources::find_job, but jobs that `filter` does not take are not there.
  std::function<void(const std::string& job, JobFilter filter,
                     std::function<void(const Result<JobView>&)>)>
      find_job;
  PageFeeds& feeds;
  LogSource read_log;
};

void AddPageRoutes(HttpServer& server, const PageContext& door);

}  // namespace muster
