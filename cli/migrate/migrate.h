// Migrate: the job file that trains what a configuration of another tool trains.
//
// Every key of the input is one of three: taken, explained (nothing here needs it, and why), or
// refused (leaving it out would change what is trained). What neither file can say is a remark, for
// the user to look at. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/migrate/migration.h"
#include "common/base/result.h"

namespace muster::migrate {

// The names that --from takes.
std::vector<std::string> Tools();

// `tool`: empty finds it out. `overrides` are KEY=VALUE, as of `muster submit --set`.
// kInvalidArgument for a text that is no configuration at all; what is refused by name is a
// finding.
Result<Migration> Migrate(std::string_view text, const std::string& file, const std::string& tool,
                          const std::vector<std::string>& overrides);

// The findings in lines, those that refuse at the end. Remarks are always there.
std::string Report(const Migration& migration, const std::string& file, bool only_refused);

// The verdicts of a tool whose file is read by a table; not found: accelerate, deepspeed, torchrun.
Result<VerdictTable> TableOfTool(const std::string& name);

}  // namespace muster::migrate
