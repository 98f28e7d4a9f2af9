// What the tests of all communicators share: a straightforward reference and the checks that run
// on every rank. Header of tests only.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/comm/transport/reduce.h"

namespace muster::testing {

// The value of element `i` of rank `r`. Small integers: exact in every type and order.
inline double ValueOf(int r, std::size_t i) {
  return static_cast<double>((static_cast<std::size_t>(r) * 7 + i * 3) % 11) - 4;
}

inline void Store(ElementType type, void* data, std::size_t i, double value) {
  switch (type) {
    case ElementType::kUint8:
      static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(value + 4);
      break;
    case ElementType::kInt64:
      static_cast<std::int64_t*>(data)[i] = static_cast<std::int64_t>(value);
      break;
    case ElementType::kFloat32: static_cast<float*>(data)[i] = static_cast<float>(value); break;
    case ElementType::kFloat64: static_cast<double*>(data)[i] = value; break;
    case ElementType::kBFloat16:
    case ElementType::kFloat16: {
      const float wide = static_cast<float>(value);
      Convert({&wide, ElementType::kFloat32}, static_cast<std::uint16_t*>(data) + i, type, 1);
      break;
    }
  }
}

inline double Load(ElementType type, const void* data, std::size_t i) {
  switch (type) {
    case ElementType::kUint8: return static_cast<const std::uint8_t*>(data)[i] - 4.0;
    case ElementType::kInt64: return static_cast<double>(static_cast<const std::int64_t*>(data)[i]);
    case ElementType::kFloat32: return static_cast<const float*>(data)[i];
    case ElementType::kFloat64: return static_cast<const double*>(data)[i];
    case ElementType::kBFloat16:
    case ElementType::kFloat16: {
      float wide = 0;
      Convert({static_cast<const std::uint16_t*>(data) + i, type}, &wide, ElementType::kFloat32, 1);
      return wide;
    }
  }
  return 0;
}

inline std::vector<std::byte> Filled(ElementType type, int r, std::size_t count) {
  std::vector<std::byte> data(count * ElementSize(type));
  for (std::size_t i = 0; i < count; ++i) Store(type, data.data(), i, ValueOf(r, i));
  return data;
}

inline double Expected(ReduceOp op, int size, std::size_t i, ElementType type) {
  // uint8 is stored with an offset of 4 so that it stays positive; sums carry it once per rank.
  double result = ValueOf(0, i);
  for (int r = 1; r < size; ++r) {
    const double value = ValueOf(r, i);
    if (op == ReduceOp::kSum) result += value + (type == ElementType::kUint8 ? 4 : 0);
    if (op == ReduceOp::kMin) result = std::min(result, value);
    if (op == ReduceOp::kMax) result = std::max(result, value);
  }
  return result;
}

// Each check returns "" or says what is wrong. `c` has the collectives of a Communicator.
inline std::string CheckAllGather(auto& c, ElementType type, std::size_t count) {
  const std::size_t size = static_cast<std::size_t>(c.size());
  const std::vector<std::byte> shard = Filled(type, c.rank(), count);
  std::vector<std::byte> full(shard.size() * size, std::byte{0xee});
  if (Status s = c.AllGather(shard.data(), full.data(), count, type)->Wait(); !s.ok()) {
    return s.ToString();
  }
  for (std::size_t r = 0; r < size; ++r) {
    const auto want = Filled(type, static_cast<int>(r), count);
    if (!want.empty() &&
        std::memcmp(full.data() + r * want.size(), want.data(), want.size()) != 0) {
      return "all-gather: block of rank " + std::to_string(r) + " differs";
    }
  }
  return "";
}

inline std::string CheckReduceScatter(auto& c, ElementType type, std::size_t count, ReduceOp op,
                                      bool in_place) {
  const std::size_t size = static_cast<std::size_t>(c.size());
  std::vector<std::byte> full = Filled(type, c.rank(), count * size);
  std::vector<std::byte> own(count * ElementSize(type));
  const std::size_t first = count * static_cast<std::size_t>(c.rank());
  void* shard = in_place ? full.data() + first * ElementSize(type) : own.data();
  if (Status s = c.ReduceScatter({.full = full.data(),
                                  .shard = shard,
                                  .count = count,
                                  .full_type = type,
                                  .sum_type = type,
                                  .shard_type = type,
                                  .op = op})
                     ->Wait();
      !s.ok()) {
    return s.ToString();
  }
  for (std::size_t i = 0; i < count; ++i) {
    const double want = Expected(op, c.size(), first + i, type);
    if (Load(type, shard, i) != want) {
      return "reduce-scatter: element " + std::to_string(i) + " is " +
             std::to_string(Load(type, shard, i)) + ", not " + std::to_string(want);
    }
  }
  return "";
}

inline std::string CheckAllReduce(auto& c, ElementType type, std::size_t count, ReduceOp op) {
  std::vector<std::byte> data = Filled(type, c.rank(), count);
  if (Status s = c.AllReduce(data.data(), count, type, op)->Wait(); !s.ok()) return s.ToString();
  for (std::size_t i = 0; i < count; ++i) {
    const double want = Expected(op, c.size(), i, type);
    if (Load(type, data.data(), i) != want) {
      return "all-reduce: element " + std::to_string(i) + " is " +
             std::to_string(Load(type, data.data(), i)) + ", not " + std::to_string(want);
    }
  }
  return "";
}

inline std::string CheckBroadcast(auto& c, std::size_t bytes, int root) {
  std::vector<std::byte> data = Filled(ElementType::kUint8, c.rank(), bytes);
  const std::vector<std::byte> want = Filled(ElementType::kUint8, root, bytes);
  if (Status s = c.Broadcast(data.data(), bytes, root)->Wait(); !s.ok()) return s.ToString();
  return data == want ? "" : "broadcast from rank " + std::to_string(root) + " differs";
}

inline std::string CheckShift(auto& c, std::size_t bytes) {
  const int previous = (c.rank() + c.size() - 1) % c.size();
  const std::vector<std::byte> sent = Filled(ElementType::kUint8, c.rank(), bytes);
  std::vector<std::byte> received(bytes, std::byte{0xee});
  if (Status s = c.RingSendRecv(sent.data(), received.data(), bytes)->Wait(); !s.ok()) {
    return s.ToString();
  }
  if (sent != Filled(ElementType::kUint8, c.rank(), bytes)) return "shift: what was sent changed";
  return received == Filled(ElementType::kUint8, previous, bytes) ? "" : "shift differs";
}

// How many bytes rank `from` has for rank `to`: none for some, and none at all for `most` 0.
inline std::size_t BlockSize(int from, int to, std::size_t most) {
  return static_cast<std::size_t>((from * 3 + to * 5) % 4) * most / 3;
}

inline std::string CheckAllToAll(auto& c, std::size_t most) {
  AllToAllArgs args;
  std::vector<std::byte> sent, want;
  const auto add = [](int from, int to, std::size_t bytes, std::vector<std::byte>* out) {
    for (std::size_t i = 0; i < bytes; ++i) {
      out->push_back(
          static_cast<std::byte>(static_cast<std::size_t>(from * 31 + to * 7) + i * 13 + (i >> 8)));
    }
  };
  for (int peer = 0; peer < c.size(); ++peer) {
    args.send_bytes.push_back(BlockSize(c.rank(), peer, most));
    args.receive_bytes.push_back(BlockSize(peer, c.rank(), most));
    add(c.rank(), peer, args.send_bytes.back(), &sent);
    add(peer, c.rank(), args.receive_bytes.back(), &want);
  }
  // The byte behind the blocks stays as it is.
  std::vector<std::byte> received(want.size() + 1, std::byte{0xee});
  want.push_back(std::byte{0xee});
  const std::vector<std::byte> before = sent;
  args.send = sent.data();
  args.receive = received.data();
  if (Status s = c.AllToAll(args)->Wait(); !s.ok()) return s.ToString();
  if (sent != before) return "all-to-all: what was sent changed";
  return received == want ? "" : "all-to-all differs with blocks up to " + std::to_string(most);
}

// Every collective, type and operation, with sizes that do not divide evenly and, for the large
// ones, do not fit one segment.
inline std::string CheckEverything(auto& c, std::size_t large) {
  for (const ElementType type :
       {ElementType::kUint8, ElementType::kInt64, ElementType::kBFloat16, ElementType::kFloat16,
        ElementType::kFloat32, ElementType::kFloat64}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{37}, large}) {
      if (auto e = CheckAllGather(c, type, count); !e.empty()) return e;
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
        if (auto e = CheckReduceScatter(c, type, count, op, count == 37); !e.empty()) return e;
        if (auto e = CheckAllReduce(c, type, count, op); !e.empty()) return e;
      }
    }
  }
  for (int root = 0; root < c.size(); ++root) {
    if (auto e = CheckBroadcast(c, large, root); !e.empty()) return e;
  }
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, large}) {
    if (auto e = CheckShift(c, bytes); !e.empty()) return e;
    if (auto e = CheckAllToAll(c, 3 * bytes); !e.empty()) return e;
  }
  if (Status s = c.Barrier(); !s.ok()) return s.ToString();
  return "";
}

// Reduce-scatter between all floating types, with and without adding to the shard.
inline std::string CheckMixedTypes(Communicator& c, std::size_t count) {
  constexpr ElementType kFull[] = {ElementType::kBFloat16, ElementType::kFloat16,
                                   ElementType::kFloat32, ElementType::kFloat64};
  constexpr ElementType kSum[] = {ElementType::kBFloat16, ElementType::kFloat32};
  constexpr ElementType kShard[] = {ElementType::kBFloat16, ElementType::kFloat32};
  const std::size_t first = count * static_cast<std::size_t>(c.rank());
  for (int i = 0; i < 32; ++i) {
    ReduceScatterArgs args{.count = count,
                           .full_type = kFull[i % 4],
                           .sum_type = kSum[i / 4 % 2],
                           .shard_type = kShard[i / 8 % 2],
                           .accumulate = i >= 16};
    auto full = Filled(args.full_type, c.rank(), count * static_cast<std::size_t>(c.size()));
    auto shard = Filled(args.shard_type, 5, count);
    args.full = full.data();
    args.shard = shard.data();
    if (Status s = c.ReduceScatter(args)->Wait(); !s.ok()) return s.ToString();
    for (std::size_t k = 0; k < count; ++k) {
      const double want = Expected(ReduceOp::kSum, c.size(), first + k, args.full_type) +
                          (args.accumulate ? ValueOf(5, k) : 0);
      if (Load(args.shard_type, shard.data(), k) != want) {
        return "mixed reduce-scatter " + std::to_string(i) + ": element " + std::to_string(k) +
               " is " + std::to_string(Load(args.shard_type, shard.data(), k)) + ", not " +
               std::to_string(want);
      }
    }
  }
  return "";
}

}  // namespace muster::testing
