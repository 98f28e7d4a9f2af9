// Migration: a configuration's job file, the verdict on each of its keys, and what the user must
// look at. Plain values; any thread.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cli/migrate/verdict_table.h"
#include "common/base/status.h"

namespace muster::migrate {

struct Finding {
  Verdict verdict = Verdict::kTaken;
  std::string key = {};
  std::string value = {};
  std::string reason = {};  // of one that is taken: the key of the job file
  int line = 0;
};

struct Migration {
  std::string tool = {};
  std::string yaml = {};  // the job file; its comments say how the rows are written
  std::vector<Finding> findings = {};
  std::vector<std::string> remarks = {};
  std::string deepspeed_file = {};  // whose settings belong to the job too; empty: none

  Status problem = {};  // why the job file is none yet, such as a model that is missing

  bool refused() const {
    return std::ranges::count(findings, Verdict::kRefused, &Finding::verdict) > 0;
  }
};

}  // namespace muster::migrate
