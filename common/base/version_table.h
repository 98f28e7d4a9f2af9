// Which versions of its messages and files this build writes and reads: the one place of each
// number. A part raises `max` of its row when an older reader could misunderstand what it writes,
// and `min` when it no longer reads what the release before last wrote.
//
// `muster version -o json` prints the table, so that `muster upgrade plan` can compare two builds;
// tests/golden holds what each release has written. Values; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// The newest version, which is written, and the oldest that is still read.
struct VersionRange {
  int min = 0;
  int max = 0;

  constexpr bool contains(int version) const { return version >= min && version <= max; }
  friend bool operator==(const VersionRange&, const VersionRange&) = default;
};

inline constexpr VersionRange kProtocols{2, 2};         // worker stream and client service
inline constexpr VersionRange kStoreSchemas{3, 6};      // the SQLite file; docs/store-format.md
inline constexpr VersionRange kJournalVersions{3, 6};   // frames of a journal
inline constexpr VersionRange kEtcdFormats{1, 1};       // keys and values in etcd
inline constexpr VersionRange kGuardianPackets{1, 1};   // worker/guardian/protocol.h
inline constexpr VersionRange kLauncherPackets{1, 1};   // worker/launcher/messages.h
inline constexpr VersionRange kTrainerMessages{1, 1};   // common/control_pipe/trainer_protocol.h
inline constexpr VersionRange kProgressPages{3, 3};     // common/control_pipe/progress_page.h
inline constexpr VersionRange kTrainingFigures{1, 4};   // likewise, the second half of the page
inline constexpr VersionRange kSnapshotSegments{2, 2};  // docs/snapshot-format.md
inline constexpr VersionRange kShards{1, 2};            // docs/checkpoint-format.md
inline constexpr VersionRange kManifests{1, 1};         // likewise

// The keys under which the rows are compared and printed.
namespace version_key {
inline constexpr char kProtocol[] = "protocol";
inline constexpr char kStoreSchema[] = "store_schema";
inline constexpr char kJournal[] = "journal";
inline constexpr char kEtcd[] = "etcd";
inline constexpr char kGuardianPackets[] = "guardian_packets";
inline constexpr char kLauncherPackets[] = "launcher_packets";
inline constexpr char kTrainerMessages[] = "trainer_messages";
inline constexpr char kProgressPage[] = "progress_page";
inline constexpr char kTrainingFigures[] = "training_figures";
inline constexpr char kSnapshot[] = "snapshot";
inline constexpr char kShard[] = "shard";
inline constexpr char kManifest[] = "manifest";
}  // namespace version_key

struct VersionRow {
  std::string_view key;
  VersionRange range;
};

// A row of another build's table.
struct NamedVersions {
  std::string key;
  VersionRange range;

  friend bool operator==(const NamedVersions&, const NamedVersions&) = default;
};

inline constexpr std::array<VersionRow, 12> kVersionTable = {{
    {version_key::kProtocol, kProtocols},
    {version_key::kStoreSchema, kStoreSchemas},
    {version_key::kJournal, kJournalVersions},
    {version_key::kEtcd, kEtcdFormats},
    {version_key::kGuardianPackets, kGuardianPackets},
    {version_key::kLauncherPackets, kLauncherPackets},
    {version_key::kTrainerMessages, kTrainerMessages},
    {version_key::kProgressPage, kProgressPages},
    {version_key::kTrainingFigures, kTrainingFigures},
    {version_key::kSnapshot, kSnapshotSegments},
    {version_key::kShard, kShards},
    {version_key::kManifest, kManifests},
}};

inline std::vector<NamedVersions> OwnVersions() {
  std::vector<NamedVersions> own;
  for (const VersionRow& row : kVersionTable) own.push_back({std::string(row.key), row.range});
  return own;
}

// The newest version that both sides speak, or nothing if they share none.
constexpr std::optional<int> CommonVersion(VersionRange a, VersionRange b) {
  const int newest = std::min(a.max, b.max);
  return newest >= std::max(a.min, b.min) ? std::optional(newest) : std::nullopt;
}

// "2" or "1 to 2".
inline std::string RangeText(VersionRange range) {
  const std::string newest = std::to_string(range.max);
  return range.min == range.max ? newest : std::to_string(range.min) + " to " + newest;
}

// "protocol 2" or "protocols 1 to 2".
inline std::string ProtocolText(VersionRange range) {
  return (range.min == range.max ? "protocol " : "protocols ") + RangeText(range);
}

}  // namespace muster
