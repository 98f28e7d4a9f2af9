// More checks that the tests of all communicators share: groups split off, and sums whose bits show
// the order of additions. Header of tests only.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "trainer/comm/group/testing/collectives_testing.h"

namespace muster::testing {

// A group of its own: its members in their order, and collectives among them.
inline std::string CheckGroup(Communicator& world, const std::string& name,
                              const std::vector<int>& members) {
  auto group = world.Split(name, members, Deadline::After(std::chrono::seconds(20)));
  if (!group.ok()) return name + ": " + group.status().ToString();
  Communicator& c = **group;
  const std::int64_t mine = world.rank();
  std::vector<std::int64_t> ranks(members.size());
  if (Status s = c.AllGather(&mine, ranks.data(), 1, ElementType::kInt64)->Wait(); !s.ok()) {
    return s.ToString();
  }
  if (ranks != std::vector<std::int64_t>(members.begin(), members.end())) return name + ": order";
  auto e = CheckReduceScatter(c, ElementType::kFloat32, 901, ReduceOp::kSum, true);
  if (e.empty()) e = CheckAllReduce(c, ElementType::kBFloat16, 9001, ReduceOp::kMax);
  if (e.empty()) e = CheckAllToAll(c, 9001);
  return e.empty() ? CheckBroadcast(c, 901, c.size() - 1) : e;
}

// The groups of a hybrid mesh: the ranks of a node, the ranks at one place of every node, groups
// of one, and all ranks in the opposite order, twice.
inline std::string CheckHybridGroups(Communicator& c, int nodes) {
  const int per_node = c.size() / nodes;
  std::vector<int> node;
  std::vector<int> replicas;
  std::vector<int> reversed;
  for (int i = 0; i < per_node; ++i) node.push_back(c.rank() / per_node * per_node + i);
  for (int n = 0; n < nodes; ++n) replicas.push_back(c.rank() % per_node + n * per_node);
  for (int r = c.size() - 1; r >= 0; --r) reversed.push_back(r);
  for (const auto& members : {node, replicas, std::vector<int>{c.rank()}, reversed, reversed}) {
    if (auto e = CheckGroup(c, "group", members); !e.empty()) return e;
  }
  return CheckEverything(c, 37);
}

// A ring of all ranks passes `bytes` on while the world's own operations come and go.
inline std::string CheckShiftBesideOthers(Communicator& world, std::size_t bytes) {
  std::vector<int> members;
  for (int r = 0; r < world.size(); ++r) members.push_back(r);
  auto buddies = world.Split("buddy", members, Deadline::After(std::chrono::seconds(20)));
  if (!buddies.ok()) return buddies.status().ToString();
  const std::vector<std::byte> sent = Filled(ElementType::kUint8, world.rank(), bytes);
  std::vector<std::byte> received(bytes);
  const auto shift = (*buddies)->RingSendRecv(sent.data(), received.data(), bytes);
  for (int i = 0; i < 5; ++i) {
    if (auto e = CheckAllReduce(world, ElementType::kFloat32, 9001, ReduceOp::kSum); !e.empty()) {
      return e;
    }
  }
  if (Status s = shift->Wait(); !s.ok()) return s.ToString();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  return received == Filled(ElementType::kUint8, previous, bytes) ? "" : "shift differs";
}

// What a page shows of a gang of two and of a group of it, over two generations.
inline std::string CheckCounting(Communicator& c,
                                 const std::function<Rendezvous(Generation)>& meet) {
  auto fd = CreateProgressPage();
  const std::shared_ptr<ProgressWriter> page = *ProgressWriter::Map(fd->get());
  c.CountInto(page);
  const auto reader = *ProgressReader::Map(fd->get());
  for (const Generation generation : {1, 2}) {
    if (Status s = c.Form(meet(generation), Deadline::After(std::chrono::seconds(20))); !s.ok()) {
      return s.ToString();
    }
    const auto pair = c.Split("pair", {0, 1}, Deadline::After(std::chrono::seconds(20)));
    if (!pair.ok()) return pair.status().ToString();
    for (int i = 0; i < 3; ++i) {
      if (auto e = CheckBroadcast(c, 1000, 0); !e.empty()) return e;
    }
    if (Status s = (*pair)->Barrier(); !s.ok()) return s.ToString();
    const auto counts = reader->ReadCollectives();
    if (counts.size() != 2 || counts[0].group != "world" || counts[1].group != "pair") {
      return "other groups than world and pair";
    }
    for (const CollectiveCounts& each : counts) {
      const std::uint64_t operations = each.group == "world" ? 3 : 1;
      if (each.enqueued != operations || each.started != operations ||
          each.completed != operations || each.wait_nanoseconds == 0) {
        return each.group + " in generation " + std::to_string(generation) + ": " +
               std::to_string(each.enqueued) + ", " + std::to_string(each.started) + ", " +
               std::to_string(each.completed);
      }
    }
    if (c.counters().started != 3) return "counters differ from the page";
    const auto issued = [&page](CollectiveOp op) {
      return page->operations()[static_cast<std::size_t>(op)];
    };
    const auto times = static_cast<std::uint64_t>(generation);  // they go on over generations
    if (issued(CollectiveOp::kBroadcast) != 3 * times ||
        issued(CollectiveOp::kBarrier) != 2 * times - 1) {
      return "other operations than three broadcasts and one or two barriers a generation";
    }
    // Every rank has looked before any leaves.
    if (Status s = c.Barrier(); !s.ok()) return s.ToString();
  }
  return "";
}

// Values whose sums depend on the order of additions: the bits show whether two runs, or two
// communicators, added up alike.
inline std::vector<float> OrderSensitive(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i) * 0.37F + static_cast<float>(rank)) * 1e3F;
  }
  return values;
}

// Bits, or the text of what a collective ended with.
inline std::string OrderSensitiveSums(Communicator& c, std::size_t count) {
  const auto full = OrderSensitive(c.rank(), count * static_cast<std::size_t>(c.size()));
  std::string bits;
  const auto add = [&](const auto& values) {
    bits.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    for (const ElementType sum_type : {ElementType::kFloat32, ElementType::kFloat16}) {
      std::vector<std::byte> source(full.size() * ElementSize(type));
      Convert({full.data()}, source.data(), type, full.size());
      std::vector<float> shard(count, 0.1F);
      const Status done = c.ReduceScatter({.full = source.data(),
                                           .shard = shard.data(),
                                           .count = count,
                                           .full_type = type,
                                           .sum_type = sum_type,
                                           .accumulate = true})
                              ->Wait();
      if (!done.ok()) return done.ToString();
      add(shard);
    }
    for (const std::size_t elements : {std::size_t{100}, count}) {
      std::vector<std::byte> data(elements * ElementSize(type));
      Convert({full.data()}, data.data(), type, elements);
      const Status done = c.AllReduce(data.data(), elements, type, ReduceOp::kSum)->Wait();
      if (!done.ok()) return done.ToString();
      add(data);
    }
  }
  return bits;
}

}  // namespace muster::testing
