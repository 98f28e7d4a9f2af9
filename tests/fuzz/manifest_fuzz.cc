// A checkpoint's manifest, alone and in the list that a trainer resumes from, and the head of a
// shard: frame and header. An input that begins with '#' is a shard; what follows is the length of
// its data in kilobytes and its header.
#include <string>

#include "common/checkpoint_format/shard_frame.h"
#include "tests/fuzz/fuzz.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/shard_header.h"

namespace {

using namespace muster;

void TryShard(fuzz::Input input) {
  const std::uint64_t data_bytes = std::uint64_t{input.Byte()} << 10;
  const std::string_view json = input.rest();
  const ShardFrame frame = ShardFrame::Make(json.size(), data_bytes);
  const std::string head = EncodeShardHead(frame, json);
  const Result<ShardFrame> read =
      DecodeShardFrame(std::string_view(head).substr(0, kShardPreambleBytes), frame.file_bytes());
  fuzz::Require(read.ok() && read->data_begin == frame.data_begin, "a frame is the same");
  const Result<DecodedShardHeader> decoded = ShardHeaderFromJson(json, frame);
  if (!decoded.ok()) return;
  fuzz::Require(decoded->places.end <= frame.data_bytes, "arrays lie within the data");
  fuzz::Require(ShardHeaderFromJson(ShardHeaderToJson(decoded->header), frame).ok(),
                "a header that is written can be read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::TextOf(data, size);
  if (text.starts_with('#')) {
    TryShard(fuzz::Input(text.substr(1)));
    (void)DecodeShardFrame(text.substr(1), size);
    return 0;
  }
  const Result<CheckpointManifest> manifest = ManifestFromJson(text);
  if (manifest.ok()) {
    const std::string printed = ManifestToJson(*manifest);
    const Result<CheckpointManifest> again = ManifestFromJson(printed);
    fuzz::Require(again.ok() && ManifestToJson(*again) == printed, "a manifest is the same");
  }
  const Result<std::vector<CheckpointManifest>> list = ManifestListFromJson(text);
  if (list.ok()) {
    fuzz::Require(ManifestListFromJson(ManifestListToJson(*list)).ok(), "a list can be read again");
    BestOf(*list);
  }
  Step step = 0;
  Generation generation = 0;
  if (ParseCheckpointDirectoryName(text, &step, &generation))
    fuzz::Require(CheckpointDirectoryName(step, generation) == text, "a directory has one name");
  return 0;
}
