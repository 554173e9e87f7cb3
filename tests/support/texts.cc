#include "support/texts.h"

namespace varve::testing {

std::string english_text() {
  return R"(The harbour office kept two logbooks. The first one was official: arrivals, departures, tonnage, the price of
coal on the day. The second one lay in the drawer under the window, and everybody who worked the night shift wrote in it
when the wind was too loud for sleep. Nobody had ever decided that it should exist. It simply went on, page after page,
in eleven or twelve different hands, and the older entries were already turning the brown of weak tea.

On the fourth of March somebody had written about a grey seal that followed the pilot boat all the way to the breakwater
and back again. On the fifth there was only a drawing of a teapot. On the ninth, in green ink, a long complaint about the
new foghorn, which in the opinion of the writer sounded less like a warning than like a cow that had swallowed a trumpet.
Below it another hand had added: "I have met that cow, and she resents the comparison."

Marit read these pages slowly during her first winter, because she had been told that a person learns a harbour through
its weather, and she did not believe it. Weather was numbers. She liked numbers. She had come from the institute inland
with a suitcase of instruments, and every six hours she wrote down the pressure, the temperature of the water at one, five
and ten metres, and the direction of the swell. After forty days she had a table of a thousand figures, neat as knitting,
and still the fishermen came in before each storm while her barometer was looking the other way.

"You measure it when it is already here," old Tobias said, when she finally asked. He was mending a net with a needle made
of bone, and he did not look up. "We listen to who is leaving. First the terns go. Then the sand eels move to the deep
side of the bank, and the seals go after them, so nobody begs at the pier. Then my left knee. Then the sea. By the time
your needle moves, the sea has been talking for a day and a half."

She laughed, but that night she opened the second logbook with a ruler and a pencil. She counted the entries that spoke of
terns, of seals, of empty piers, of knees; she counted them against the storms in the official book, eleven years of them.
It took three weeks. When she had finished, she drew one curve over the other on a sheet of squared paper, and then she sat
for a long time and looked at it, while outside the lamp turned and turned and the snow went by the window in short white
sentences. The two curves were not the same. But one of them followed the other like a dog that knows the way home, always
a little more than thirty hours ahead.

In April she sent a letter to the institute. It was returned with a polite note, which said that anecdotes, however
numerous, could not be calibrated. She pinned the note above the drawer. Under it, in the second logbook, she wrote her own
first entry: "Terns gone since noon. Nobody at the pier. I have ordered a new needle for Tobias, and I have moved the
instruments under the roof." Then she put on her coat, because the telephone was ringing, and the mayor wished to know
whether the regatta could )";
}

std::string code_text() {
  std::string text = R"(// A small discrete-event simulation of a bakery: orders arrive, ovens bake, couriers deliver.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

namespace bakery {

struct Event {
  int64_t at_seconds;
  int priority;
  std::function<void()> action;
  bool operator<(const Event& other) const {
    if (at_seconds != other.at_seconds) return at_seconds > other.at_seconds;
    return priority > other.priority;
  }
};

class Clock {
 public:
  void schedule(int64_t delay_seconds, int priority, std::function<void()> action) {
    queue_.push(Event{now_ + delay_seconds, priority, std::move(action)});
  }
  bool step() {
    if (queue_.empty()) return false;
    Event next = queue_.top();
    queue_.pop();
    now_ = next.at_seconds;
    next.action();
    return true;
  }
  int64_t now() const { return now_; }

 private:
  std::priority_queue<Event> queue_;
  int64_t now_ = 0;
};

enum class Bread { kRye, kWheat, kSourdough, kBrioche };

)";
  const char* names[] = {"rye", "wheat", "sourdough", "brioche"};
  const int minutes[] = {55, 40, 70, 35}, loaves[] = {12, 18, 8, 24};
  for (int i = 0; i < 4; ++i) {
    const std::string name = names[i];
    text += "int64_t bake_seconds_" + name + "(int loaves) {\n";
    text += "  // A full oven holds " + std::to_string(loaves[i]) + " loaves; more go in a second batch.\n";
    text +=
        "  const int batches = (loaves + " + std::to_string(loaves[i] - 1) + ") / " + std::to_string(loaves[i]) + ";\n";
    text += "  return int64_t{60} * " + std::to_string(minutes[i]) + " * std::max(batches, 1);\n}\n\n";
  }
  text += R"(struct Order {
  std::string customer;
  Bread bread;
  int loaves;
  int64_t due_seconds;
};

class Bakery {
 public:
  explicit Bakery(Clock& clock, int ovens) : clock_(clock), free_ovens_(ovens) {}

  void submit(Order order) {
    waiting_.push_back(std::move(order));
    std::stable_sort(waiting_.begin(), waiting_.end(),
                     [](const Order& a, const Order& b) { return a.due_seconds < b.due_seconds; });
    start_baking();
  }

  int late_orders() const { return late_; }

 private:
  void start_baking() {
    while (free_ovens_ > 0 && !waiting_.empty()) {
      Order order = waiting_.front();
      waiting_.erase(waiting_.begin());
      --free_ovens_;
      const int64_t seconds = bake_seconds(order.bread, order.loaves);
      clock_.schedule(seconds, 0, [this, order] { finish(order); });
    }
  }

  static int64_t bake_seconds(Bread bread, int loaves) {
    switch (bread) {
      case Bread::kRye: return bake_seconds_rye(loaves);
      case Bread::kWheat: return bake_seconds_wheat(loaves);
      case Bread::kSourdough: return bake_seconds_sourdough(loaves);
)";
  return text;
}

std::string cjk_text() {
  return R"(港の事務所には二冊の日誌があった。一冊目は正式なもので、入港、出港、積荷の重さ、その日の石炭の値段が書かれている。二冊目は
窓の下の引き出しにあり、風がうるさくて眠れない夜に、当直の者が思い思いに書き込んだ。誰かが決めたわけではない。ただ続いてきたのだ。🌊📖

三月四日、灰色のアザラシが水先案内船を防波堤まで追いかけてきた、と誰かが書いている。五日は急須の絵だけ。九日には緑のインクで、新しい霧笛への
長い文句が残っていた。「あれは警告というより、ラッパを飲み込んだ牛の声だ」。その下に別の手で一言。「その牛なら知っている。心外だそうだ」🐄🎺

第二年的冬天，玛丽特从内陆的研究所来到这座小港。她带着一箱仪器，每隔六个小时记录一次气压、水温和涌浪的方向。四十天以后，她有了一张一千个数字
的表格，整齐得像织好的毛衣；可是每次风暴来临之前，渔民们总是先回到港口，而她的气压计还望着别的方向。🌡️❄️

“你量的是已经到了的东西。”老托比亚斯一边补网一边说，“我们听的是谁先离开。先是燕鸥飞走，然后沙鳗游到深水那边，海豹跟着它们去，码头上就没有谁来讨
鱼吃了。接着是我的左膝盖。最后才是大海。等你的指针动了，大海已经说了一天半的话。”🐟🦭🦵

그날 밤 그녀는 자와 연필을 들고 두 번째 일지를 펼쳤다. 제비갈매기, 물범, 텅 빈 부두, 그리고 무릎에 대한 기록을 하나하나 세어 공식 일지의 폭풍과
맞추어 보았다. 열한 해의 기록이었다. 삼 주가 걸렸다. 모눈종이 위에 두 곡선을 겹쳐 그린 뒤, 그녀는 오랫동안 그것을 바라보았다. 두 곡선은 같지
않았다. 하지만 하나는 집으로 가는 길을 아는 개처럼, 언제나 서른 시간쯤 앞서서 다른 하나를 이끌고 있었다. 📈🐕🏠

四月，她写了一封信给研究所。回信很客气，说轶事无论有多少，都无法校准。她把那张纸钉在抽屉上方，然后在第二本日志里写下了自己的第一行字：“中午起燕鸥都
不见了。码头上没有谁。我给托比亚斯订了一根新的骨针，也把仪器搬到了屋檐下。”☎️ 电话响了，市长想知道，明天的帆船比赛能不能照常举行。⛵

彼女は窓の外を見た。雪が短い白い文のように流れていく。灯台の光が回り、そのたびに港の石垣が一瞬だけ白く浮かび上がった。二冊目の日誌は机の上に
開いたままで、最後の行のインクはまだ乾いていない。燕はもういない。船は二隻だけ残り、綱がきしむ音が夜の底で数を数えているようだった。🐦🌙

그녀는 전화를 끊고 두 번째 일지에 한 줄을 더 적었다. “시장님께는 내일 바람이 없을 거라고 말하지 않았다. 모레 이야기를 했다.” 그리고)";
}

}  // namespace varve::testing
