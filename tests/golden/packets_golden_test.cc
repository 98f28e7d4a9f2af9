// What passes between the processes of a node, as releases have sent it: packets of worker and
// guardian, of worker and launcher, exit records, and a rank's progress page.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>

#include "common/base/unique_fd.h"
#include "common/control_pipe/progress_page.h"
#include "tests/golden/release_golden.h"
#include "worker/agent/trainer_report.h"
#include "worker/guardian/protocol.h"
#include "worker/launcher/messages.h"

namespace muster::golden {
namespace {

GuardianLaunch Launch() {
  return {.generation = 3,
          .rank = 2,
          .argv = {"muster-trainer", "train"},
          .environment = {"A=1", "B=2"},
          .working_directory = "/work",
          .log_path = "/out/rank-2.log",
          .control = true,
          .listen = true,
          .node_ranks = {2, 3},
          .cpus = {4, 5},
          .memory_node = 1,
          .rendezvous_token = "aabb",
          .devices = {"GPU-1"}};
}

std::vector<GuardianCommand> Commands() {
  return {GuardianPrepare{.generation = 3,
                          .master = MasterSocket::kBindOnly,
                          .bind_address = "10.0.0.1",
                          .spare = true,
                          .devices = {"GPU-1", "GPU-2"},
                          .memory_limit_bytes = 123456789012},
          Launch(),
          GuardianAbort{.generation = 3,
                        .grace_seconds = 1.5,
                        .reason = "a peer is gone",
                        .park_seconds = 2.5,
                        .kill_ranks = {1},
                        .next_master = MasterSocket::kListen,
                        .next_bind_address = "10.0.0.2"},
          GuardianRelease{},
          GuardianStandby{.count = 2, .at_once = true, .first = 1, .launch = Launch()},
          GuardianStop{.generation = 3, .reason = "drained"},
          GuardianFault{.generation = 3, .rank = 1, .kind = "slow", .argument = "0.3"},
          GuardianHold{.name = "g1-rank0"},
          GuardianSecrets{},
          GuardianPing{}};
}

GuardianRankExited Exited() {
  return {.generation = 3,
          .rank = 1,
          .end = {.exit = {.exit_code = 3, .signal = 9},
                  .node_stopped = true,
                  .ended = true,
                  .out_of_memory = true,
                  .asked_to_stop = true},
          .age_seconds = 0.5,
          .log_tail = {"last", "words"}};
}

std::vector<GuardianEvent> Events() {
  return {GuardianHello{.pid = 77,
                        .job = "00c0ffee10",
                        .generation = 3,
                        .answers_pings = true,
                        .packets = {1, 1}},
          GuardianPrepared{.generation = 3, .error = "no port", .master_port = 29500},
          GuardianRankStarted{.generation = 3, .rank = 1, .pid = 78},
          Exited(),
          GuardianReport{.generation = 3, .rank = 1, .json = R"({"type":"formed"})"},
          GuardianQuiesced{.generation = 3,
                           .unkillable_pids = {79},
                           .parked_ranks = {1},
                           .standbys = 2,
                           .next_master_port = 29501},
          GuardianSegment{.name = "g1-rank0", .dropped = true},
          GuardianSynced{},
          GuardianRefused{.generation = 2, .newest = 3, .message = "older"},
          GuardianAlive{}};
}

template <typename Variant, typename Decode>
void CheckPackets(const std::string& path, const std::vector<Variant>& values, Decode decode) {
  std::set<std::size_t> kinds;
  for (const Variant& value : values) kinds.insert(value.index());
  EXPECT_EQ(kinds.size(), std::variant_size_v<Variant>) << "a packet of every kind";
  ForEachRelease(
      [&](const std::string& release) {
        std::vector<nlohmann::ordered_json> lines;
        for (const Variant& value : values)
          lines.push_back(nlohmann::ordered_json::parse(Encode(value)));
        WriteLines(release + path, lines);
      },
      [&](const std::string& release) {
        const auto lines = ReadLines(release + path);
        ASSERT_EQ(lines.size(), values.size());
        for (std::size_t i = 0; i < lines.size(); ++i) {
          const auto read = decode(lines[i].dump());
          ASSERT_TRUE(read.ok()) << lines[i] << ": " << read.status().ToString();
          EXPECT_EQ(*read, values[i]) << lines[i];
        }
      });
}

TEST(PacketsGolden, GuardianCommandsOfReleasesMeanWhatTheyMeant) {
  CheckPackets("/guardian_commands.jsonl", Commands(), DecodeGuardianCommand);
}

TEST(PacketsGolden, GuardianEventsOfReleasesMeanWhatTheyMeant) {
  CheckPackets("/guardian_events.jsonl", Events(), DecodeGuardianEvent);
}

TEST(PacketsGolden, ExitRecordsOfReleasesMeanWhatTheyMeant) {
  ForEachRelease(
      [](const std::string& release) {
        WriteText(release + "/exit_record.json", EncodeExitRecord(Exited()));
      },
      [](const std::string& release) {
        const auto read = DecodeExitRecord(ReadText(release + "/exit_record.json"));
        ASSERT_TRUE(read.ok()) << read.status().ToString();
        EXPECT_EQ(*read, Exited());
      });
}

std::vector<TrainerReport> Reports() {
  const auto report = [](auto body) {
    return TrainerReport{
        .job = JobId{"00c0ffee10"}, .generation = 2, .rank = 1, .body = std::move(body)};
  };
  return {report(Formed{}),
          report(Resumed{
              .step = 40, .rejected = {{"step-00000050-g1", "damaged"}}, .from = "checkpoint"}),
          report(FirstStep{.step = 41}),
          report(ShardWritten{
              .step = 50,
              .directory = "step-00000050-g2",
              .shard = {.rank = 1, .file = "rank-00001.shard", .bytes = 123, .checksum = "xxh3:1"},
              .eval_loss = 2.125}),
          report(CheckpointFailed{
              .step = 50, .kind = CheckpointTrouble::kDiskFull, .reason = "no room"}),
          report(TrainerError{.kind = "data", .message = "row 3", .step = 12}),
          report(TrainerNote{.severity = "warning", .message = "3 rows"}),
          report(Finished{.step = 200, .model_dir = "/out/model"}),
          report(Parked{.step = 40})};
}

// As ranks of the release have said it (state_golden_test.cc writes the file).
TEST(PacketsGolden, ReportsOfRanksOfReleasesMeanWhatTheyMeant) {
  for (const std::string& release : Releases()) {
    SCOPED_TRACE(release);
    const auto lines = ReadLines(release + "/rank_messages.jsonl");
    const std::vector<TrainerReport> expected = Reports();
    ASSERT_EQ(lines.size(), expected.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto read = worker::ParseTrainerReport(JobId{"00c0ffee10"}, 2, 1, lines[i].dump());
      ASSERT_TRUE(read.ok()) << lines[i] << ": " << read.status().ToString();
      EXPECT_EQ(*read, expected[i]) << lines[i];
    }
  }
}

launcher::Request Request(launcher::Verb verb) {
  launcher::Request request{.verb = verb};
  const bool has_account = verb == launcher::Verb::kDirectory ||
                           verb == launcher::Verb::kGuardian || verb == launcher::Verb::kFiles;
  const bool has_job = verb != launcher::Verb::kHello && verb != launcher::Verb::kFiles;
  if (has_account) launcher::Put("alice", request.account);
  if (has_job) launcher::Put("00c0ffee10", request.job);
  if (verb == launcher::Verb::kGuardian) launcher::Put("/run/locks", request.devices);
  return request;
}

std::string_view BytesOf(const auto& packet) {
  return {reinterpret_cast<const char*>(&packet), sizeof packet};
}

TEST(PacketsGolden, LauncherPacketsOfReleasesMeanWhatTheyMeant) {
  constexpr int kVerbs = 6;
  launcher::Reply reply{.code = 9};
  ASSERT_TRUE(launcher::Put("/run/muster", reply.text));
  const auto write = [&reply](const std::string& release) {
    std::vector<nlohmann::ordered_json> lines;
    for (int verb = 1; verb <= kVerbs; ++verb)
      lines.push_back(Hex(BytesOf(Request(static_cast<launcher::Verb>(verb)))));
    lines.push_back(Hex(BytesOf(reply)));
    WriteLines(release + "/launcher_packets.jsonl", lines);
  };
  ForEachRelease(write, [&reply](const std::string& release) {
    const auto lines = ReadLines(release + "/launcher_packets.jsonl");
    ASSERT_EQ(lines.size(), kVerbs + 1u);
    for (int verb = 1; verb <= kVerbs; ++verb) {
      const std::string bytes = Unhex(lines[static_cast<std::size_t>(verb - 1)].get<std::string>());
      std::optional<launcher::Request> read;
      for (std::size_t descriptors = 0; descriptors < 5 && !read; ++descriptors)
        read = launcher::Decode(bytes, descriptors);
      ASSERT_TRUE(read.has_value()) << verb;
      EXPECT_EQ(BytesOf(*read), BytesOf(Request(static_cast<launcher::Verb>(verb))));
    }
    EXPECT_EQ(Unhex(lines.back().get<std::string>()), BytesOf(reply));
  });
}

ProgressValues Values() {
  ProgressValues values{.generation = 3,
                        .step = 40,
                        .max_steps = 100,
                        .micro_batch = 2,
                        .phase = TrainPhase::kBackward,
                        .loss = 1.25,
                        .grad_norm = 2.25,
                        .learning_rate = 3.25,
                        .step_seconds = 4.25,
                        .tokens_per_second = 5.25,
                        .tokens = 6,
                        .samples = 7,
                        .steps_done = 8,
                        .tokens_done = 9,
                        .nonfinite = 10,
                        .rss_bytes = 11,
                        .clock_ns = 12,
                        .snapshot_step = 13,
                        .busy_seconds = 14.25,
                        .wait_seconds = 15.25,
                        .step_seconds_sum = 16.25};
  for (std::size_t i = 0; i < values.phase_seconds.size(); ++i)
    values.phase_seconds[i] = 100.5 + static_cast<double>(i);
  for (std::size_t i = 0; i < values.step_seconds_buckets.size(); ++i)
    values.step_seconds_buckets[i] = 200 + i;
  return values;
}

TrainingFigures Figures() {
  TrainingFigures figures{.samples_done = 1,
                          .flops_done = 2.5,
                          .mfu = 0.5,
                          .last_step_unix_ms = 3,
                          .checkpoint_bytes = 4,
                          .device = {1, 2, 3, 4, 5, 6, 7, 8, 9},
                          .first_collectives = {1, 2, 3, 4, 5, 6},
                          .socket_fallbacks = 5,
                          .routers = {.experts = 8,
                                      .largest_share = 0.5,
                                      .smallest_share = 0.25,
                                      .entropy = 0.75,
                                      .idle = 1},
                          .more_collectives = {7}};
  for (std::size_t i = 0; i < figures.part_seconds.size(); ++i)
    figures.part_seconds[i] = 10.5 + static_cast<double>(i);
  for (std::size_t i = 0; i < figures.time_seconds.size(); ++i)
    figures.time_seconds[i] = 20.5 + static_cast<double>(i);
  for (std::size_t i = 0; i < figures.collective_errors.size(); ++i)
    figures.collective_errors[i] = 30 + i;
  for (const double seconds : {0.02, 5.0}) figures.stage.Observe(seconds);
  figures.write.Observe(40);
  return figures;
}

std::string PageBytes() {
  const auto fd = CreateProgressPage();
  EXPECT_TRUE(fd.ok());
  const std::shared_ptr<ProgressWriter> page = *ProgressWriter::Map(fd->get());
  page->values() = Values();
  page->Publish();
  const auto cell = ClaimCell(page, "world");
  cell->enqueued = 5;
  cell->started = 4;
  cell->completed = 3;
  cell->bytes = 2;
  cell->wait_nanoseconds = 1;
  (*FiguresWriter::Map(fd->get()))->Publish(Figures());
  std::string bytes(kProgressPageBytes, '\0');
  EXPECT_EQ(::pread(fd->get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return bytes;
}

UniqueFd PageOf(const std::string& bytes) {
  UniqueFd fd(::memfd_create("page", MFD_CLOEXEC));
  EXPECT_EQ(::pwrite(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return fd;
}

TEST(PacketsGolden, ProgressPagesOfReleasesAreReadAsTheyWereMeant) {
  ForEachRelease(
      [](const std::string& release) { WriteText(release + "/progress_page", PageBytes()); },
      [](const std::string& release) {
        const UniqueFd fd = PageOf(ReadText(release + "/progress_page"));
        const auto page = ProgressReader::Map(fd.get());
        ASSERT_TRUE(page.ok()) << page.status().ToString();
        ProgressValues values;
        ASSERT_TRUE((*page)->Read(&values));
        const ProgressValues expected = Values();
        EXPECT_EQ(BytesOf(values), BytesOf(expected));
        EXPECT_EQ((*page)->ReadCollectives(),
                  (std::vector<CollectiveCounts>{{.group = "world",
                                                  .enqueued = 5,
                                                  .started = 4,
                                                  .completed = 3,
                                                  .bytes = 2,
                                                  .wait_nanoseconds = 1}}));
        TrainingFigures figures;
        ASSERT_TRUE((*FiguresReader::Map(fd.get()))->Read(&figures));
        EXPECT_EQ(figures, Figures());
      });
}

}  // namespace
}  // namespace muster::golden
