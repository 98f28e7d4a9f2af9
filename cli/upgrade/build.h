// Where the version tables that an upgrade compares come from: this program, what daemons say of
// themselves, and the release to upgrade to.
//
// Free functions; one thread. ReadBuild reads a file or runs a program, for some seconds at most.
#pragma once

#include <string>

#include "cli/base/output.h"
#include "cli/upgrade/upgrade_plan.h"
#include "common/base/result.h"
#include "muster/v1/client_api.pb.h"

namespace muster::upgrade {

Build OwnBuild();
// Without rows for one of a version before 0.2.0.
Build BuildOf(const v1::VersionResponse& response);
Build BuildOf(const v1::Node& node);

// {"protocol": {"min": 2, "max": 2}, ...}; null: it has no table.
Json TableJson(const Build& build);
// What `muster version -o json` prints, read. kFailedPrecondition: a version without a table.
Result<Build> ParseBuild(const std::string& text);
// Asks a release's `muster`, by its path or that of the directory that holds it (or holds it in
// bin/); or reads a file with what it prints.
Result<Build> ReadBuild(const std::string& path);

}  // namespace muster::upgrade
