// muster slurm pilots: it shows the file that the coordinator writes, and asks no process.

#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"

namespace muster {
namespace {

class SlurmPilotsTest : public CommandsTest {
 protected:
  void Written(const std::string& status) const {
    ASSERT_TRUE(WriteFileAtomically(context_->client.paths().PilotsStatus(), status).ok());
  }
  // What is printed.
  std::string Shown(OutputFormat format = OutputFormat::kTable) {
    out_.str("");
    context_->output = format;
    const CommandResult result = Run({"slurm", "pilots"});
    EXPECT_TRUE(result.ok() && *result == kExitSuccess) << result.status().ToString();
    return out_.str();
  }
};

constexpr char kTwoPilots[] = R"({"pilots": [
  {"key": "p1-1", "slurm_job_id": 42, "state": "running", "reason": null, "nodes": "n[1-2]",
   "why": "job j waits for 2 nodes", "asked_unix_ms": 1700000000000,
   "ends_unix_ms": 1700000060000},
  {"key": "p1-2", "slurm_job_id": null, "state": "submitting", "reason": "Priority",
   "nodes": null, "why": "1 node spare", "asked_unix_ms": 1700000000000, "ends_unix_ms": null}],
  "conditions": ["2 nodes more would be above max_nodes"]})";

TEST_F(SlurmPilotsTest, WithoutACoordinatorsRequestThereAreNone) {
  EXPECT_EQ(Shown(), "PILOT  SLURM JOB  STATE  NODES  ASKED  ENDS  WHY\n");
  EXPECT_EQ(Json::parse(Shown(OutputFormat::kJson)),
            (Json{{"pilots", Json::array()}, {"conditions", Json::array()}}));
}

TEST_F(SlurmPilotsTest, TheTableShowsWhatWasRequestedAndWhyNotMore) {
  Written(kTwoPilots);
  const std::string table = Shown();
  EXPECT_NE(table.find("p1-1   42         running     n[1-2]"), std::string::npos) << table;
  EXPECT_NE(table.find("job j waits for 2 nodes\n"), std::string::npos) << table;
  EXPECT_NE(table.find("p1-2   -          submitting  -"), std::string::npos) << table;
  EXPECT_NE(table.find("1 node spare (Priority)\n"), std::string::npos) << table;
  EXPECT_NE(table.find("\n2 nodes more would be above max_nodes\n"), std::string::npos) << table;
}

TEST_F(SlurmPilotsTest, AsJsonTimesAreTextAndWhatIsNotKnownIsNull) {
  Written(kTwoPilots);
  const Json shown = Json::parse(Shown(OutputFormat::kJson));
  EXPECT_EQ(shown.at("pilots").at(0), (Json{{"key", "p1-1"},
                                            {"slurm_job_id", 42},
                                            {"state", "running"},
                                            {"reason", nullptr},
                                            {"nodes", "n[1-2]"},
                                            {"why", "job j waits for 2 nodes"},
                                            {"asked", "2023-11-14T22:13:20.000Z"},
                                            {"ends", "2023-11-14T22:14:20.000Z"}}));
  const Json& second = shown.at("pilots").at(1);
  EXPECT_EQ(second.at("reason"), "Priority");
  for (const char* key : {"slurm_job_id", "nodes", "ends"})
    EXPECT_TRUE(second.at(key).is_null()) << key;
  EXPECT_EQ(shown.at("conditions"), (Json{"2 nodes more would be above max_nodes"}));
}

TEST_F(SlurmPilotsTest, AFileOfAnotherKindIsRefusedByName) {
  for (const char* text : {"no json", "[]", "{}", R"({"pilots": 7})"}) {
    Written(text);
    const CommandResult result = Run({"slurm", "pilots"});
    EXPECT_EQ(result.status().code(), StatusCode::kDataLoss) << text;
    EXPECT_NE(result.status().message().find("coordinator/pilots.json"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace muster
