"""Chinese text of the synthetic corpora. Written for this project; people, organisations and products are invented."""

from synthetic.grammar import (
    NerText,
    ReadingText,
    ReviewText,
    items,
    joined,
    lines,
    words,
)


# Entities

_GIVEN = joined(
    "建 志 文 晓 雨 思 海 永 春 明 子 家 佳 玉 国 天 立 若 秋 宏",
    "华 强 敏 丽 军 伟 芳 平 涛 琳 杰 宁 峰 婷 辉 燕 超 凡 彤 安",
) + list("伟敏静磊洋勇艳娟刚超霞斌鹏宇浩凯蕾欣雷")
_ZH_CITY = words(
    """
    北京 上海 广州 深圳 杭州 南京 苏州 成都 重庆 武汉 西安 长沙 郑州 青岛 大连 沈阳 哈尔滨 昆明 贵阳 南宁 厦门 福州
    合肥 济南 太原 兰州 银川 西宁 拉萨 海口 三亚 桂林 洛阳 开封 绍兴 宁波 温州 无锡 扬州 徐州 烟台 珠海 佛山 东莞
    大理 丽江
    """
) + joined("临 安 清 永 新 石 龙 平 江 云 梅 白 金 宜 长", "河 溪 阳 州 原 泉 浦 岭 湾 宁 陵 桥")
_ZH_COUNTRY = words(
    """
    法国 德国 英国 西班牙 意大利 挪威 瑞典 芬兰 波兰 希腊 土耳其 埃及 肯尼亚 尼日利亚 摩洛哥 秘鲁 智利 巴西 阿根廷
    墨西哥 加拿大 日本 韩国 印度 尼泊尔 泰国 越南 马来西亚 印度尼西亚 澳大利亚 新西兰 冰岛 爱尔兰 葡萄牙 俄罗斯
    乌克兰 约旦 伊朗
    """
)
_ZH_BRAND = joined("华 恒 瑞 腾 远 星 鼎 盛 宏 汇 科 联 信 达 泰", "腾 通 源 创 丰 基 驰 讯 邦 诚 拓 润 翔 隆")
_ZH_MAKE = joined("小 极 飞 星 灵 幻 青 云 轻 悦", "鹿 光 鸟 影 雀 羽 犀 豚 帆 鲸 雁 狐")

CHINESE_NER = NerText(
    joiner="",
    parts={"given": _GIVEN, "city": _ZH_CITY, "country": _ZH_COUNTRY, "brand": _ZH_BRAND, "make": _ZH_MAKE},
    shared={
        "family": [
            *"王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕白江金方",
            "欧阳",
            "司马",
        ],
        "form": words("集团 公司 科技 银行 证券 汽车 医药 传媒 航空 能源 食品 保险 有限公司 股份有限公司"),
        "model": words("手机 手表 平板 音箱 电动车 耳机 相机 X3 2 5 Pro 青春版 笔记本"),
        "title": words("教授 医生 先生 女士 局长 市长 老师 经理 律师 主任 院长"),
        "role": words("董事长 总经理 发言人 主教练 首席科学家 创始人 副校长 财务总监 队长 研究员 制片人 护士长"),
        "month": [f"{month}月" for month in range(1, 13)],
        "day": [f"{day}日" for day in range(1, 32)],
        "year": [f"{year}年" for year in range(1960, 2025)],
        "count": words("两 三 五 七 十 二十 三十多 一百 两百多 上千"),
        "money": words("3亿元 500万元 两千元 1299元 20亿美元 八百万元"),
        "thing": words("会议 比赛 合同 展览 大桥 地铁 项目 选举 演出 审判 暴雨 研究"),
        "field": words("物理 经济 历史 医学 法律 人工智能 音乐 海洋生物"),
        "building": words("银行 大学 医院 博物馆 车站 机场 图书馆 学校 公园 工厂"),
        "weekday": words("周一 周二 周三 周四 周五 周六 周日"),
    },
    names={
        "PER": ("PER", ["{family}{given}"]),
        "ORG": (
            "ORG",
            [
                "{brand}{form}",
                "{brand}{form}",
                "{city}{brand}{form}",
                "{city}大学",
                "{city}师范学院",
                "{city}银行",
                "{city}市第一医院",
                "{city}市公安局",
                "{city}博物馆",
                "{city}日报",
                "{country}足协",
                "{brand}研究院",
                "{brand}基金会",
            ],
        ),
        "COMPANY": ("ORG", ["{brand}{form}", "{city}{brand}{form}", "{brand}"]),
        "TEAM": ("ORG", ["{city}{brand}队", "{city}队", "{city}{brand}俱乐部"]),
        "LOC": (
            "LOC",
            ["{city}"] * 4
            + ["{country}"] * 3
            + ["{city}市", "{city}县", "{city}机场", "{city}路", "{city}火车站", "{city}山", "{city}湖"],
        ),
        "CITY": ("LOC", ["{city}", "{city}", "{city}市", "{city}县"]),
        "PRODUCT": ("PRODUCT", ["{make}{model}", "{make}{model}", "{make}"]),
    },
    sentences=lines(
        """
        {PER}出任{ORG}{role}。
        {COMPANY}将于{month}在{CITY}开设新办事处。
        {ORG}{role}{PER}否认了这一说法。
        {PER}{title}在{CITY}告诉记者，{thing}将如期举行。
        {TEAM}在{CITY}以三比一战胜{TEAM}。
        {CITY}警方在{thing}后拘留了{count}人。
        {COMPANY}宣布召回{PRODUCT}，股价大跌。
        {PRODUCT}将在{LOC}上市，售价{money}。
        {PER}{year}生于{CITY}，毕业于{ORG}。
        上{weekday}我在{LOC}碰到了{PER}。
        {PER}和{PER}{month}要搬到{CITY}去。
        {COMPANY}同意以{money}收购{COMPANY}。
        {ORG}与{ORG}签署了{money}的合同。
        {CITY}市长{PER}为新{building}剪彩。
        {weekday}的大雨淹没了{LOC}和{LOC}的部分地区。
        {PER}{title}在{ORG}讲授{field}。
        从{CITY}开往{CITY}的列车在{LOC}附近脱轨。
        画家{PER}一直住在{CITY}，直到{year}。
        旧的{PRODUCT}坏了，我在{CITY}买了{PRODUCT}。
        {PRODUCT}真的比{PRODUCT}好用吗？
        {COMPANY}在{CITY}的展会上发布了{PRODUCT}。
        飞往{LOC}的航班晚点了，{PER}写道。
        {CITY}的{ORG}正在招聘{role}。
        {LOC}与{LOC}的边境{month}关闭。
        {ORG}的学生在{building}见到了{PER}。
        {PER}梅开二度，{TEAM}客场取胜。
        {TEAM}以{money}从{TEAM}签下{PER}。
        {PER}和丈夫{PER}住在{LOC}附近。
        {ORG}表示，{LOC}的{thing}耗资{money}。
        {ORG}由{PER}于{year}创立，在{LOC}有员工{count}人。
        {weekday}没有人接{COMPANY}的电话。
        我在{COMPANY}上班，弟弟{PER}在{COMPANY}。
        {PER}是谁？{ORG}为什么起诉她？
        {PER}将出演一部关于{LOC}的电影。
        {PER}一案{month}{day}在{CITY}开庭。
        {ORG}的科学家在{count}名病人身上试验了{PRODUCT}。
        {PER}在{COMPANY}工作{count}年后加入{COMPANY}。
        {LOC}的这座{building}建于{year}。
        {COMPANY}在{LOC}生产{PRODUCT}和{PRODUCT}。
        {year}，{PER}登上了{LOC}。
        {PER}的律师说{PER}从未去过{LOC}。
        {LOC}政府请求{ORG}提供帮助。
        {TEAM}{role}{PER}称赞了{PER}。
        你问问{PER}，{PRODUCT}要不要换电池。
        {PER}的歌迷在{CITY}的{building}外等候。
        {ORG}发布了{LOC}{field}报告。
        {PER}在{ORG}工作，家在{CITY}。
        {ORG}总部位于{LOC}。
        {PER}从{COMPANY}买了一台{PRODUCT}。
        """
    ),
    ambiguous=frozenset(),
    plain=lines(
        """
        {building}{month}{weekday}开门吗？
        {month}是{year}以来最干的一个月。
        孩子们{weekday}高兴地在江边的{building}放风筝。
        {month}的早晨，白色的马在{building}外的黄土路上慢慢走。
        这所大学和{building}从{year}起共用一座旧楼。
        {thing}的费用一共是{money}。
        国王和王后是{year}那副棋里的棋子。
        新手机的屏幕更好，{month}卖{money}。
        医生和护士{weekday}中午离开了{building}。
        {building}里方的桌子、圆的椅子，都是{year}用木头做的。
        何时开始{thing}，{weekday}谁也不知道。
        老城的{building}旁有{count}条小街。
        金价{year}{month}又涨了。
        年轻人{weekday}看完{thing}就回家了。
        {month}{day}安静的夜里，林中传来鸟叫。
        学{field}要花{count}年时间。
        没有人知道是谁为{thing}付了{money}。
        {weekday}公司上下都在谈论{month}的{thing}。
        {year}{month}的{thing}取消了。
        唐诗宋词，他{year}就会背{count}首。
        """
    ),
    openers=lines(
        """
        {weekday}，
        据当地媒体报道，
        昨天，
        {year}{month}，
        {thing}结束后，
        快讯：
        两天后，
        在一封信中，
        """
    ),
    tails=lines(
        """
        ，{PER}说。
        ，据{ORG}报道。
        ，{PER}{weekday}写道。
        ，官员表示。
        ！
        ，{ORG}对此没有回应。
        ，花费{money}。
        """
    ),
)


# Reviews: subject (it needs no verb after "|") -> praise and complaint

_ZH_ASPECTS = {
    "hotel": {
        "房间|": ("干净整洁; 又大又亮; 安静舒适; 很温馨", "又脏又乱; 潮湿; 狭小吵闹; 有股怪味"),
        "服务员|": ("热情; 很有耐心; 反应很快; 周到", "冷漠; 爱理不理; 动作太慢; 粗心"),
        "早餐|": ("新鲜丰富; 美味; 种类齐全", "难吃; 又冷又硬; 种类太少"),
        "床|": ("柔软; 舒服; 铺得整整齐齐", "太硬; 吱吱作响; 脏"),
        "窗外的景色|": ("很美; 迷人; 让人心情舒畅", "一般; 单调; 被高楼挡住了"),
    },
    "restaurant": {
        "汤|": ("鲜美; 味道浓郁; 恰到好处", "太咸; 淡而无味; 半冷不热"),
        "价格|": ("公道; 实惠; 便宜得让人惊喜", "离谱; 太贵; 虚高"),
        "鱼|": ("鲜嫩; 入味; 火候正好", "太腥; 烤焦了; 刺多肉少"),
        "上菜|": ("很快; 及时; 有条不紊", "太慢; 混乱; 等了一个小时"),
        "甜点|": ("精致; 甜而不腻; 可口", "太甜; 粗糙; 像是隔夜的"),
    },
    "film": {
        "剧情|": ("扣人心弦; 感人; 很有新意", "老套; 漏洞百出; 拖沓"),
        "演员的表演|": ("自然; 精彩; 打动人心", "做作; 生硬; 让人尴尬"),
        "音乐|": ("动听; 选得很好; 让人难忘", "刺耳; 吵得头疼; 毫无特色"),
        "结尾|": ("温暖; 出人意料; 回味无穷", "仓促; 莫名其妙; 无聊"),
        "画面|": ("唯美; 很有气势; 细腻", "粗糙; 昏暗; 晃得头晕"),
    },
    "phone": {
        "屏幕|": ("清晰; 色彩漂亮; 阳光下也看得清", "模糊; 有划痕; 太暗"),
        "电池|": ("耐用; 能撑两天; 令人满意", "不耐用; 不到中午就没电; 令人失望"),
        "快递|": ("很快; 准时; 包装仔细", "晚了两周; 态度差; 把箱子压坏了"),
        "拍照|": ("清楚; 夜里也好看; 很快", "模糊; 颜色失真; 反应慢"),
        "外壳|": ("结实; 轻巧; 手感好", "单薄; 容易刮花; 裂了"),
    },
    "book": {
        "作者的文字|": ("幽默; 流畅; 很有深度", "啰嗦; 枯燥; 不知所云"),
        "翻译|": ("通顺; 准确; 读起来很舒服", "生硬; 错误百出; 读不下去"),
        "第一章|": ("有趣; 引人入胜; 很精彩", "沉闷; 看不懂; 无聊"),
        "印刷|": ("清楚; 精美; 字大易读", "模糊; 掉页; 有错字"),
        "人物|": ("鲜活; 可爱; 让人难忘", "单薄; 讨厌; 千篇一律"),
    },
}

CHINESE_REVIEWS = ReviewText(
    joiner="",
    aspects=_ZH_ASPECTS,
    says=items(
        "{s}{v}{o}; 我觉得{s}{v}{o}; 没想到{s}{v}{o}; 大家都说{s}{v}{o}; 不得不说，{s}{v}{o}; "
        "{s}{v}真的{o}; 在我看来{s}{v}{o}"
    ),
    denies=items("{s}{v}算不上{o}; {s}{v}谈不上{o}; 谁也不会说{s}{v}{o}; 说{s}{v}{o}，我可不同意; {s}{v}一点也不{o}"),
    verdicts=(
        "下次还会选它; 强烈推荐; 给五星; 物有所值; 全家都喜欢; 非常满意; 没有白花钱; 值得; "
        "会介绍给朋友; 比我试过的都好",
        "再也不会选它了; 不推荐; 一星都嫌多; 浪费时间; 全家都不喜欢; 非常失望; 想退款; "
        "很后悔; 劝大家别选; 比别家差远了",
    ),
    links=lines(
        """
        虽然{weak}，但是{strong}
        {weak}，不过{strong}
        尽管{weak}，{strong}
        {strong}，哪怕{weak}
        """
    ),
    asides=items(
        "这是今年第二次了; 是妹妹送的; 上个星期二下雨; 是朋友介绍的; 我们一共五个人; 是生日礼物; "
        "之前看过别人的评价; 前后两个小时"
    ),
)

CHINESE_READING = ReadingText(
    kinds={"PER": "人", "ORG": "机构", "LOC": "地方", "PRODUCT": "产品"},
    questions=lines(
        """
        和{name}一起提到的是哪个{kind}？
        说到{name}的那句话提到了哪个{kind}？
        哪个{kind}与{name}出现在同一句话里？
        """
    ),
)
