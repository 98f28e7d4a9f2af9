// ShardedState: a checkpoint as one set of tensors, by intersecting intervals.
//
// Every shard says which intervals of which tensors it holds; where they lie in its arrays is its
// own business. So any number of ranks reads what any other number has written. Where several
// shards hold the same interval (replicas), any one of them will do: one that is damaged or missing
// is given up and another is read. A byte is handed out only after its piece was verified.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/state/checkpoint/shard_file.h"
#include "trainer/state/checkpoint/state_reader.h"

namespace muster {

class ShardedState final : public StateReader {
 public:
  // Of <checkpoints_dir>/<manifest.directory>; nothing is opened yet.
  ShardedState(const std::string& checkpoints_dir, CheckpointManifest manifest);

  // Reads headers: of shard `likely` alone if all of `arrays` lies in it, as when nothing but time
  // has passed since the save, else of all shards. kDataLoss when shards are damaged, missing or
  // contradict each other such that not everything is there any more; other codes when a file
  // cannot be read for a reason that says nothing about it.
  Status OpenFor(const std::vector<ShardArray>& arrays, int likely);
  Status OpenAll();

  // Elements of the model that was saved; 0: not known.
  std::int64_t parameters() const { return parameters_; }

  const std::string& path() const override { return directory_; }
  const TrainCursor& cursor() const override { return cursor_; }
  const std::optional<AdapterOrigin>& adapter() const override { return adapter_; }
  std::vector<std::string> kinds() const override;
  std::vector<std::string> tensors(std::string_view kind) const override;
  const StateTensor* Find(std::string_view kind, const std::string& tensor) const override;
  Status Read(std::string_view kind, const std::string& tensor, std::int64_t begin,
              std::int64_t count, void* out) override;

 private:
  // A run of a tensor's elements in the data of a shard.
  struct Segment {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::size_t shard = 0;
    std::uint64_t offset = 0;  // bytes
  };
  struct Entry {
    StateTensor tensor;
    std::vector<Segment> segments;  // by begin; those of replicas are equal but for the shard
  };
  using Index = std::map<std::pair<std::string, std::string>, Entry>;  // by kind and tensor
  struct Shard {
    bool opened = false;  // or tried
    std::unique_ptr<ShardReader> reader;
    Status lost;  // why it is not used
  };

  Status OpenShardAt(std::size_t shard);
  Status CheckIdentity(const ShardReader& reader, std::size_t shard);
  Status AddArrays(const ShardReader& reader, std::size_t shard);
  Status AddSegment(const ShardArray& array, const TensorInterval& interval,
                    const ShardReader& reader, const Segment& segment);
  Status CheckSegments() const;
  // Whether everything that was saved can still be had although a shard is lost.
  bool IsComplete() const;
  const Status* FirstLost() const;
  bool Covers(const ShardArray& array, const TensorInterval& interval) const;
  // A segment with element `at` whose shard is still good; null: none.
  const Segment* FindSegment(const Entry& entry, std::int64_t at) const;
  Status Missing(std::string_view kind, const std::string& tensor, std::int64_t at) const;
  const Entry* FindEntry(std::string_view kind, const std::string& tensor) const;

  const std::string directory_;
  const CheckpointManifest manifest_;
  std::vector<Shard> shards_;
  Index index_;
  TrainCursor cursor_;
  std::optional<AdapterOrigin> adapter_;
  std::int64_t parameters_ = 0;
  bool have_cursor_ = false;
  PieceCache cache_;
};

}  // namespace muster
