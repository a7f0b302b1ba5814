#include "orthant/comm/control_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

#include "comm/ranks.h"
#include "orthant/launch/activity_board.h"

namespace orthant {
namespace control_group_test {

void on_control_groups(int size, const std::function<void(const ControlGroup&)>& body) {
  for (const auto backend : {comm::BackendKind::gloo, comm::BackendKind::shm}) {
    comm::run_thread_ranks(size, [&](int rank, comm::Store store) {
      body(ControlGroup(std::make_shared<comm::Communicator>(Mesh(Degrees{{Axis::dp, size}}), rank, store,
                                                             comm::test::quick(/*check=*/true, backend))));
    });
  }
}

TEST(ControlGroup, TellsTheTextOfTheFirstRank) {
  std::string letters;
  for (int i = 0; i < 100000; ++i) letters += static_cast<char>(i);
  for (const auto& text : {std::string(), std::string("a/b"), letters}) {
    on_control_groups(3, [&](const ControlGroup& ranks) {
      EXPECT_EQ(ranks.from_first(ranks.is_first() ? text : "something else"), text);
    });
  }
  EXPECT_EQ(ControlGroup().from_first("alone"), "alone");
}

TEST(ControlGroup, GathersWhatIsOfDifferentLength) {
  on_control_groups(4, [&](const ControlGroup& ranks) {
    const auto all = ranks.gather(at::full({ranks.rank() * 2}, ranks.rank() + 0.5, at::kDouble));
    ASSERT_EQ(all.size(), 4U);
    for (int r = 0; r < 4; ++r) {
      EXPECT_TRUE(at::equal(all[static_cast<std::size_t>(r)], at::full({r * 2}, r + 0.5, at::kDouble))) << r;
    }
    for (const auto& nothing : ranks.gather(at::empty({0}, at::kLong))) EXPECT_EQ(nothing.numel(), 0);
    EXPECT_EQ(ranks.gather_texts(ranks.rank() == 2 ? "two" : ""), (std::vector<std::string>{"", "", "two", ""}));
  });
  EXPECT_EQ(ControlGroup().gather_texts("one"), std::vector<std::string>{"one"});
}

TEST(ControlGroup, AddsUpTheCountersOfAllRanks) {
  comm::run_thread_ranks(3, [&](int rank, comm::Store store) {
    const std::vector<comm::GroupRequest> groups = {{Axis::dp}, {Axis::tp}};
    const auto communicator =
        std::make_shared<comm::Communicator>(Mesh(Degrees{{Axis::dp, 3}}), rank, store, comm::test::quick(), groups);
    communicator->group(Axis::dp).all_reduce(at::zeros({5}, at::kFloat)).wait();
    const auto found = ControlGroup(communicator).counters();
    ASSERT_EQ(found.size(), 1U);  // nobody called tp
    EXPECT_EQ(found.at("dp").of(comm::Op::all_reduce).calls, 3);
    EXPECT_EQ(found.at("dp").of(comm::Op::all_reduce).bytes, 60);
  });
  EXPECT_TRUE(ControlGroup().counters().empty());
}

TEST(ControlGroup, KnowsWhatIsSoOnSomeRank) {
  on_control_groups(3, [&](const ControlGroup& ranks) {
    EXPECT_TRUE(ranks.any(ranks.rank() == 1));
    EXPECT_FALSE(ranks.any(false));
  });
  EXPECT_TRUE(ControlGroup().any(true));
  EXPECT_FALSE(ControlGroup().any(false));
}

template <typename Kind>
std::string thrown_together(const ControlGroup& ranks, const std::function<void()>& act) {
  try {
    ranks.together(act);
  } catch (const Kind& error) {
    return error.what();
  }
  return "no error";
}

TEST(ControlGroup, AllThrowWhatTheFirstThatFailsThrew) {
  on_control_groups(4, [&](const ControlGroup& ranks) {
    int done = 0;
    ranks.together([&] { ++done; });
    EXPECT_EQ(done, 1);
    EXPECT_EQ(thrown_together<DataError>(ranks,
                                         [&] {
                                           if (ranks.rank() < 2) return;
                                           throw DataError("bad \xff" + std::to_string(ranks.rank()),
                                                           {.remedy = "mend it"});
                                         }),
              "rank 2: bad \xef\xbf\xbd"
              "2\n  fix: mend it");
    EXPECT_EQ(thrown_together<ConfigError>(ranks, [&] { throw ConfigError("wrong"); }), "rank 0: wrong");
    EXPECT_EQ(thrown_together<InternalError>(ranks,
                                             [&] {
                                               if (ranks.rank() == 3) throw std::runtime_error("strange");
                                             }),
              "rank 3: strange");
  });
  EXPECT_EQ(thrown_together<DataError>({}, [] { throw DataError("mine"); }), "mine") << "one rank has no number";
}

TEST(ControlGroup, WhatTheSystemRefusesAndWhatIsForgedStaysSoOnAllRanks) {
  on_control_groups(3, [&](const ControlGroup& ranks) {
    int reason = 0;
    try {
      ranks.together([&] {
        if (ranks.rank() == 1) throw IoError("disk", ESTALE, {.remedy = "wait"});
      });
    } catch (const IoError& error) {
      reason = error.error_number();
      EXPECT_STREQ(error.what(), "rank 1: disk\n  fix: wait");
    }
    EXPECT_EQ(reason, ESTALE);
    const std::vector<std::pair<int, std::function<void()>>> others = {
        {ENOMEM, [] { throw std::bad_alloc(); }},
        {EAGAIN, [] { throw std::system_error(EAGAIN, std::generic_category()); }},
        {EACCES, [] {
           throw std::filesystem::filesystem_error("x", "run", std::error_code(EACCES, std::generic_category()));
         }}};
    for (const auto& [number, act] : others) {
      try {
        ranks.together([&] {
          if (ranks.rank() == 2) act();
        });
        ADD_FAILURE() << number;
      } catch (const IoError& error) {
        EXPECT_EQ(error.error_number(), number);
        EXPECT_EQ(error.rank(), 2);
      }
    }
    EXPECT_EQ(thrown_together<AuthenticityError>(ranks,
                                                 [&] {
                                                   if (ranks.rank() == 2) throw AuthenticityError("forged");
                                                 }),
              "rank 2: forged");
    EXPECT_EQ(thrown_together<VersionError>(ranks,
                                            [&] {
                                              if (ranks.rank() == 2) throw VersionError("of later");
                                            }),
              "rank 2: of later");
  });
}

TEST(ControlGroup, AnErrorOfAllIsSaidByTheFirst) {
  on_control_groups(2, [&](const ControlGroup& ranks) {
    EXPECT_EQ(std::string(DataError("all", ranks.alike("this")).what()),
              ranks.is_first() ? "all\n  fix: this" : "rank 0: all\n  fix: this");
  });
}

TEST(ControlGroup, EntersAPhaseForAsLongAsAScopeLives) {
  const launch::ActivityScope own;
  const ControlGroup ranks;
  EXPECT_EQ(own.activity().phase(), JobPhase::start);
  ranks.enter(JobPhase::step);
  {
    const PhaseScope saving(ranks, JobPhase::save);
    EXPECT_EQ(own.activity().phase(), JobPhase::save);
  }
  EXPECT_EQ(own.activity().phase(), JobPhase::step);
}

}  // namespace control_group_test
}  // namespace orthant
