// A folder of scripts in the place of Slurm's commands; each adds its words to `calls`. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/slurm/slurm_commands.h"

namespace muster::slurm {

class FakeSlurm {
 public:
  void Install(const std::string& command, const std::string& body) {
    const Status written = WriteFileAtomically(
        dir_ / command,
        "#!/bin/sh\necho \"" + command + " $*\" >> " + (dir_ / "calls") + "\n" + body + "\n", 0755);
    EXPECT_TRUE(written.ok()) << written.ToString();
  }

  // They find nothing but what is installed here.
  SlurmCommands Commands(Duration limit = std::chrono::seconds(20)) const {
    return SlurmCommands({{"PATH", dir_.path()}, {"SQUEUE_USERS", "nobody"}}, limit);
  }

  std::string Calls() const {
    const auto calls = ReadFile(dir_ / "calls");
    return calls.ok() ? *calls : "";
  }
  void ForgetCalls() { EXPECT_TRUE(WriteFileAtomically(dir_ / "calls", "").ok()); }

  const std::string& path() const { return dir_.path(); }

 private:
  TempDirForTest dir_;
};

// A line of squeue as SlurmCommands::List asks for it, as a word of printf's.
inline std::string ListedLine(const std::string& id, const std::string& name,
                              const std::string& state, const std::string& comment) {
  const std::string s = "\\037";
  return "'" + id + s + id + s + name + s + "ann" + s + state + s + "None" + s + "n1" + s + "1" +
         s + "n1" + s + "N/A" + s + "N/A" + s + comment + "\\n'";
}

}  // namespace muster::slurm
