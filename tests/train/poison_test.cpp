// Faults that are put in on purpose: how they are written, and where they can go.
#include "orthant/train/poison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "orthant/base/error.h"
#include "train/branching_model.h"

namespace orthant {
namespace poison_test {

std::string refusal_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Poison, IsReadFromOneLine) {
  const auto poison =
      parse_poison("gradient:rank=3,unit=layers.2,step=5,value=inf,parameter=layers.2.norm1.weight,microbatch=1");
  EXPECT_EQ(poison.kind, Poison::Kind::gradient);
  EXPECT_EQ(poison.rank, 3);
  EXPECT_EQ(poison.unit, "layers.2");
  EXPECT_EQ(poison.step, 5);
  EXPECT_EQ(poison.value, std::numeric_limits<double>::infinity());
  EXPECT_EQ(poison.parameter, "layers.2.norm1.weight");
  EXPECT_EQ(poison.microbatch, 1);
  EXPECT_TRUE(std::isnan(parse_poison("loss:rank=0,step=1,value=nan").value));
}

TEST(Poison, RefusesWhatIsMalformedWithTheRule) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"nan", "train.poison \"nan\": there is no ':'\n  fix: write KIND:rank=R,unit=U,step=S,value=nan|inf"},
      {"activations:rank=0,unit=0,step=1,value=nan",
       "unknown kind \"activations\"\n  fix: did you mean \"activation\"?"},
      {"loss:rank=0,stap=1,value=nan", "unknown word \"stap\"\n  fix: did you mean \"step\"?"},
      {"loss:rank=0,step=1,value=3", "value=3 is neither nan nor inf nor flip"},
      {"gradient:rank=0,unit=0,step=1,value=flip",
       "value=flip: what is flipped here reaches all ranks alike by sums\n  fix: flip a bit of a parameter or a "
       "gradient_sum"},
      {"loss:rank=0,step=0,value=nan", "step=0 is no number of at least 1"},
      {"loss:rank=-1,step=1,value=nan", "rank=-1 is no number of at least 0"},
      {"loss:rank=x,step=1,value=nan", "rank=x is no number"},
      {"loss:rank=0,step=1", "value= is missing"},
      {"gradient:rank=0,step=1,value=nan", "unit= is missing"},
      {"loss:rank", "\"rank\" has no '='"}};
  for (const auto& [text, expected] : cases) {
    const auto found = refusal_of([&spec = text] { parse_poison(spec); });
    EXPECT_NE(found.find(expected), std::string::npos) << text << ": " << found;
  }
}

TEST(Poison, RefusesAPlaceThatIsNotThere) {
  const auto graph = test::branching_spec(2);
  const auto mesh = Mesh::parse("pp=2,fsdp=2");
  std::vector<int> unit_pp_coordinates(graph.units.size(), 1);
  unit_pp_coordinates[0] = unit_pp_coordinates[1] = 0;
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"activation:rank=4,unit=first,step=1,value=nan", "the mesh pp=2,fsdp=2 has 4 ranks\n  fix: use 0 to 3"},
      {"activation:rank=0,unit=frist,step=1,value=nan", "did you mean \"first\"?"},
      {"activation:rank=0,unit=11,step=1,value=nan", "unit 11 of 11\n  fix: use 0 to 10"},
      {"activation:rank=2,unit=first,step=7,value=nan",
       "train.poison \"activation of rank 2, step 7\": the rank does not run unit first\n  fix: name a rank at pp 0"},
      {"activation:rank=0,unit=first,step=1,value=nan,microbatch=2", "microbatch 2 of 2\n  fix: use 0 to 1"},
      {"loss:rank=0,step=1,value=nan", "the rank runs no loss"},
      {"loss:rank=2,unit=mix,step=1,value=nan", "unit mix is no loss"},
      {"gradient:rank=2,unit=loss,step=1,value=nan", "the rank owns no trainable parameters of unit loss"},
      {"gradient:rank=0,unit=first,step=1,value=nan,parameter=first.wait",
       "parameter first.wait is not among the trainable parameters of unit first on that rank\n  fix: did you mean "
       "\"first.weight\"?"},
      {"parameter:rank=0,unit=first,step=1,value=nan,parameter=first.bias", "parameter first.bias is not among"}};
  for (const auto& [text, expected] : cases) {
    const auto found = refusal_of([&, &spec = text] {
      locate_poison({parse_poison(spec)}, graph, mesh, unit_pp_coordinates, {.zero = 3}, /*microbatches=*/2);
    });
    EXPECT_NE(found.find(expected), std::string::npos) << text << ": " << found;
  }
  const auto located =
      locate_poison({parse_poison("loss:rank=3,step=1,value=nan"),
                     parse_poison("gradient:rank=3,unit=head,step=1,value=nan,parameter=embed.weight")},
                    graph, mesh, unit_pp_coordinates, {.zero = 3}, 2);
  EXPECT_EQ(located[0].unit, 4) << "the first loss of the stage";
  EXPECT_GE(located[1].buffer, 0) << "a tied parameter, by the unit that borrows it";
}

}  // namespace poison_test
}  // namespace orthant
